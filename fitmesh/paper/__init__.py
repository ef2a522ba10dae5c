"""`fitmesh paper`: the tables of "On the Calibration of Human Pose Estimation" (Gu, Chen, Yao) made again."""
