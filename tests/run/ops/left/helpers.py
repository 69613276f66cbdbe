SIDE = "left"
