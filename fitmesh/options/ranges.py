"""Define the limits of every numeric option, and options that several commands share."""

from fitmesh.options.record import Option
from pose2d.base.errors import Range

TIME_S = Range(0, 10**7)  # four months of video
SYNC_S = Range(-(10**7), 10**7)  # start of one camera after another
EVERY = Range(1, 10**6)
FPS = Range(0.001, 100_000)
DETECTOR_SIZE = Range(32, 2048, multiple=32)  # a square of 2048 pixels takes 2 GB in the detector
EXPORT_FPS = Range(1, 1000)
SHARE = Range(0, 1)
RELIABLE_MM = Range(1, 10000)
PEOPLE = Range(1, 10**6)
THREADS = Range(1, 256)
FOCAL_PX = Range(1, 10**6)
FOV_DEG = Range(0.1, 175)
COUNT = Range(1, 10**6)
SEED = Range(0, 2**32 - 1)
JOBS = Range(1, 256)
LEARNING_RATE = Range(1e-9, 10)
WEIGHT_DECAY = Range(0, 10)
LOSS_WEIGHT = Range(0, 1000)
PASSES = Range(0, 1000)
WIDTH = Range(1, 8192)  # of a hidden layer
CACHE_GB = Range(0, 10**6)
PORT = Range(0, 65535)
SIDE_PX = Range(16, 8192)  # of images that `synth` makes, and of the overlay
SCENE_S = Range(0.1, 60)  # of a scripted scene


KEYPOINTS = "Keypoints"  # the panel of the help
DEFAULT_MODEL = "rtmpose-s-halpe26"
POSE_MODEL = Option("Keypoint network by name; `fitmesh models` lists all.", KEYPOINTS)
PLUGIN = Option(
    "Python file that registers your own network (docs/own-network.md). Its code is executed.",
    KEYPOINTS,
)
