"""`fitmesh train-ccnet` and `fitmesh eval-coco`."""
