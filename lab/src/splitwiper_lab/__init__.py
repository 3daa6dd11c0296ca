"""The SplitWiper laboratory: data sets, networks, baselines, attacks, and reproductions of the paper's results.

It uses the public interfaces of `splitwiper`, which never imports it. Once it is installed, its commands appear in
``splitwiper --help``.
"""
