"""`fitmesh paper`: the tables of "On the Calibration of Human Pose Estimation" (Gu, Chen, Yu, Yao)
made again.
"""
