"""Where a fit starts: the lifter, or an image regressor (SPIN, CLIFF)."""

# names for `fitting.init.regressors.load_regressor`
REGRESSORS = ("spin", "cliff", "cliff-res50", "cliff-hr48")
