"""The paper's plans, tables and figures."""
