"""Time series forecasting, imputation and anomaly detection on synthetic stand-ins for public series."""

__version__ = "0.4.1"
