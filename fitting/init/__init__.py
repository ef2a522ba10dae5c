"""Where a fit starts: the lifter, or an image regressor (SPIN, CLIFF)."""

REGRESSORS = (
    "spin",
    "cliff",
    "cliff-res50",
    "cliff-hr48",
)  # what `fitting.init.regressors.load_regressor` takes
