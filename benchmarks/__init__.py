"""Benchmarks: ``python -m benchmarks`` from the root of the repository measures what is promised, on this machine.

One file per benchmark in `benchmarks.suite`; a new file there is a new benchmark. It has a docstring, whose first line
says what is measured, and

- ``run(*, quick) -> Iterator[Result]``: the measurement. Timings are ratios within one run, because machines differ and
  share their time; absolute times are kept only where a GPU is measured. ``quick`` makes it small enough for a test.
- ``missing() -> str`` (optional): what it needs and cannot find, for example a GPU or a data set; it is then skipped.
- ``child(**parameters) -> dict`` (optional): a part that must run in a process of its own; see `harness.in_child`.

Results go to ``results/benchmarks/NAME.jsonl``, and the page in that folder is generated from these files only.
"""
