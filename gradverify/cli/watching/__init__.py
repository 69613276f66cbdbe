"""`gradverify run --watch`: the cases that a saved file concerns are run again."""
