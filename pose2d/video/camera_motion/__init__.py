"""How the camera moves during a shot, measured from the image motion of the background.

motion.py: the result and its arrays in `tracks.npz`. background.py: a whole video, shot by shot.
estimator.py: one shot. Its parts are corners.py (features and optical flow), rotation.py (rotation
and zoom between two frames), parallax.py (what they leave), turning_focal.py (the focal length that
a turning camera reveals), kind.py (static, rotating, moving or unknown) and verticals.py (gravity
from straight lines)."""
