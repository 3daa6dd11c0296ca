"""The style sheet of the page of results, added to that of all pages."""

from __future__ import annotations

from splitwiper_lab.pages import charts, tradeoff

STYLE = (
    charts.STYLE
    + tradeoff.STYLE
    + """
h1 + .subtitle { margin-top: .5rem; max-width: 48rem; }
.claim { border-left: 6px solid var(--edge); }
.claim h2 { display: flex; flex-wrap: wrap; gap: .3rem .8rem; align-items: center; margin-bottom: .5rem; }
.claim .letter { color: var(--soft); font-weight: 400; }
.claim .pill { font-size: .95rem; }
.claim .why { margin-top: .7rem; }
.claim .why strong { color: var(--tone); }
.claim td:nth-child(2) { min-width: 10rem; } .claim tbody th { min-width: 13rem; max-width: 24rem; }
.claim td:nth-child(3) { white-space: nowrap; }
.claim td:last-child { font-size: .82rem; width: auto; overflow-wrap: normal; }
.claim tbody th { padding-left: 1.8rem; text-indent: -1.5rem; }
.sign { display: inline-block; width: 1.5rem; text-indent: 0; }
.glance { margin: 1.1rem 0; } .glance dt { min-height: 0; margin-bottom: .35rem; } .glance dt a { font-weight: 600; }
.made { margin-top: 1rem; }
.where { color: var(--soft); font-size: .9rem; margin-bottom: .4rem; }
section > p + p, section > p + div { margin-top: .6rem; }
section > pre { margin-top: 1rem; }
section > .facts { margin-top: 1.2rem; } div > details + details { margin-top: .6rem; }
.paper { display: block; color: var(--soft); font-size: .78rem; line-height: 1.35; }
.part th, .part td { background: var(--faint); border-bottom: 0; }
tr.part > th { font-weight: 650; color: var(--ink); font-size: .85rem; white-space: nowrap; }
.systems tbody th { font-weight: 400; min-width: 9.5rem; }
.formulas tbody th { font-weight: 400; min-width: 5.5rem; } .formulas td:nth-child(2) { min-width: 11.5rem; }
.panels > *, .two > *, .tiles > * { min-width: 0; }
.verdicts, .missing { padding: 0; list-style: none; font-size: .92rem; }
.verdicts > li { margin: .55rem 0; } .verdicts ul { padding-left: 1.1rem; font-size: .82rem; color: var(--soft); }
.verdicts details { margin-top: .25rem; } .verdicts summary { font-weight: 500; font-size: .85rem; color: var(--soft); }
.missing { columns: 2; font-size: .82rem; color: var(--soft); }
.none-yet { padding: .8rem 1rem; background: var(--faint); border-radius: 6px; margin-top: .8rem; }
.covered, .judged { margin-top: 1rem; }
.banner { border-left: 6px solid var(--open-edge); background: var(--open-wash); }
nav ol { columns: 2; column-gap: 2.5rem; padding-left: 1.4rem; margin: 0; font-size: .92rem; }
nav li { margin: .2rem 0; }
a { color: var(--second); }
figure { margin-top: .8rem; }
h4 { margin: 0; }
.pareto .slim { display: none; }
@media screen and (max-width: 44rem) {
  nav ol, .missing { columns: 1; }
  .pareto .slim { display: block; }
  .claim .scroll .prose tbody th { padding-left: 1.5rem; } .claim td { padding-left: 1.5rem; }
  .claim .scroll .prose td { padding-left: 1.5rem; font-size: .88rem; }
  .systems .part th { max-width: none; overflow-wrap: normal; }
  .scroll tr.part th { background: var(--faint); }
}
@media print { .panels { break-inside: auto; } .panels > div, .claim { break-inside: avoid; } nav { display: none; } }
"""
)
"""Colours, markers, cards and tables."""
