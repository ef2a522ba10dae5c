"""Which keypoint network: options that several commands have, written once."""

from fitmesh.options.record import Option

KEYPOINTS = "Keypoints"  # the panel of the help
DEFAULT_MODEL = "rtmpose-s-halpe26"
POSE_MODEL = Option("Keypoint network; `fitmesh models` lists them.", KEYPOINTS)
PLUGIN_HELP = "A Python file that registers a network of your own (docs/own-network.md): it is run."
PLUGIN = Option(PLUGIN_HELP, KEYPOINTS)
