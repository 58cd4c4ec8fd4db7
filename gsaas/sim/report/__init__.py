# SPDX-License-Identifier: Apache-2.0
"""Reports of simulations: a self-contained HTML page for people, and tables (JSON, CSV, Parquet) for programs.

results  the report of a scenario     page  HTML pages and tables     svg  charts
"""
