"""The laboratory of SplitWiper: data sets, networks, baselines, attacks, and the paper's results measured again.

It uses the public interfaces of `splitwiper`, which never imports it. Its commands appear in ``splitwiper --help`` once
it is installed.
"""
