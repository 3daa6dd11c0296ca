"""Pages and charts of the laboratory, built in Python: markup, tables, and charts of several series as SVG."""
