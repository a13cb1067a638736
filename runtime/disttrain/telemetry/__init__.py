"""Metric definitions, the Prometheus exporter and the log format. Knows no role's insides."""
