SIDE = "right"
