"""Gradient Rescaling (Wang et al. 2019): which samples to emphasise under label noise."""
