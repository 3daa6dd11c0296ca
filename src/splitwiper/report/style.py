"""The style sheet. Colours are Okabe and Ito's, darkened or lightened where text needs contrast."""

PALETTE = """
:root {
  color-scheme: light dark;
  --page: #f4f5f6; --card: #ffffff; --ink: #1a1f24; --soft: #545d66; --rule: #dce0e4; --faint: #eef0f2;
  --first: #e3e6ea; --first-edge: #6b7580; --second: #0072b2; --mark: #a84300; --band: #fbeee4;
  --good: #00694d; --good-edge: #009e73; --good-wash: #eaf6f1;
  --bad: #9c3f00; --bad-edge: #d55e00; --bad-wash: #fdf0e7;
  --open: #6f4c00; --open-edge: #e69f00; --open-wash: #fdf6e4;
  --lost: #873c66; --lost-edge: #cc79a7; --lost-wash: #faf0f6;
  --h1: #e3f0f8; --h2: #c3dff0; --h3: #96c7e4; --h4: #3f96c8; --h5: #00659e; --h4-ink: #08131a; --h5-ink: #ffffff;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #121518; --card: #1b1f24; --ink: #e8ebee; --soft: #a5aeb8; --rule: #343b43; --faint: #252a30;
    --first: #3a424b; --first-edge: #98a3af; --second: #56b4e9; --mark: #f5a267; --band: #33261d;
    --good: #74d9b9; --good-edge: #1fb489; --good-wash: #14291f;
    --bad: #ffa56b; --bad-edge: #e8762a; --bad-wash: #31200f;
    --open: #f2c45c; --open-edge: #e69f00; --open-wash: #2c2410;
    --lost: #e6acca; --lost-edge: #cc79a7; --lost-wash: #2b1d26;
    --h1: #1d2d38; --h2: #1e3f54; --h3: #1d5677; --h4: #3f9bd0; --h5: #8ccdf2; --h4-ink: #06121a; --h5-ink: #06121a;
  }
}
"""
"""Colours by name, light and dark."""

CSS = (
    PALETTE
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.55 -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.5rem 2rem; }
h1, h2, h3, p, ul, dl, dd, figure, pre { margin: 0; }
h1 { font-size: 1.75rem; line-height: 1.25; font-weight: 650; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; line-height: 1.3; font-weight: 650; margin-bottom: .8rem; }
h3 { font-size: .95rem; font-weight: 650; margin: 1.3rem 0 .4rem; }
.number { color: var(--soft); font-weight: 400; margin-right: .7em; font-variant-numeric: tabular-nums; }
.subtitle { color: var(--soft); font-size: 1.05rem; }
.when, .caption, figcaption, .small, .note, .empty, footer { color: var(--soft); font-size: .875rem; }
header { margin-bottom: 1.5rem; }
section, .tiles > div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
section { padding: 1.4rem 1.6rem 1.5rem; margin: 1.1rem 0; }
section > p { max-width: 48rem; text-wrap: pretty; }
footer { padding: .6rem 0; }

.verdict { border-left: 6px solid var(--edge); background: var(--wash); padding: 1.5rem 1.75rem; }
.exact { --tone: var(--good); --edge: var(--good-edge); --wash: var(--good-wash); }
.mismatch { --tone: var(--bad); --edge: var(--bad-edge); --wash: var(--bad-wash); }
.not_comparable { --tone: var(--open); --edge: var(--open-edge); --wash: var(--open-wash); }
.unverifiable { --tone: var(--lost); --edge: var(--lost-edge); --wash: var(--lost-wash); }
.plain { --tone: var(--soft); --edge: var(--rule); --wash: var(--faint); }
.badge { color: var(--tone); font-weight: 650; font-size: .95rem; }
.badge .glyph {
  display: inline-block; width: 1.5em; height: 1.5em; line-height: 1.5em; margin-right: .55em;
  text-align: center; border-radius: 50%; background: var(--tone); color: var(--card);
}
.headline {
  font-size: 1.55rem; line-height: 1.3; font-weight: 650; letter-spacing: -.01em; margin: .6rem 0 .5rem;
}
.proof { margin-top: .4rem; font-weight: 600; }
.verdict > p { max-width: 52rem; }
.verdict .note { margin-top: .5rem; }
.pill {
  display: inline-block; white-space: nowrap; padding: 0 .6em; border-radius: 1em; line-height: 1.65;
  font-size: .85em; font-weight: 600; color: var(--tone); background: var(--wash); border: 1px solid var(--edge);
}
.pill .glyph { margin-right: .4em; }
.pill.plain { white-space: normal; }
.tag { display: block; color: var(--mark); font-weight: 400; font-size: .8rem; line-height: 1.3; }

.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 1.1rem; }
.tiles > div { padding: 1rem 1.15rem 1.1rem; }
.tiles dt { color: var(--soft); font-size: .875rem; line-height: 1.35; }
.tiles .value { font-size: 1.85rem; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles .small { line-height: 1.4; }

svg { display: block; width: 100%; height: auto; font-family: inherit; font-variant-numeric: tabular-nums; }
svg text { fill: var(--ink); font-size: 13px; }
svg .tick { fill: var(--soft); font-size: 12px; }
svg .value {
  font-size: 11.5px; fill: var(--soft); paint-order: stroke; stroke: var(--card); stroke-width: 3px;
}
svg .remark { fill: var(--mark); font-size: 11px; }
svg .strong { font-weight: 650; fill: var(--ink); }
svg .value.strong { stroke: var(--band); }
svg .name.strong { fill: var(--mark); }
.grid { stroke: var(--rule); } .axis { stroke: var(--first-edge); }
.band { fill: var(--band); }
.bar.first { fill: var(--first); stroke: var(--first-edge); } .bar.second { fill: var(--second); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.first { stroke: var(--first-edge); stroke-dasharray: 5 4; } .line.second { stroke: var(--second); }
.dot.first { fill: var(--card); stroke: var(--first-edge); stroke-width: 1.5; }
.dot.second { fill: var(--second); }
figcaption, .caption { margin-top: .7rem; text-wrap: pretty; }
.slim { display: none; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2.5rem; align-items: start; }
.two h3 { margin-top: .3rem; }
.legend {
  display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; list-style: none; padding: 0; margin: .5rem 0 .7rem;
  font-size: .875rem;
}
.swatch {
  display: inline-block; width: .95em; height: .95em; margin-right: .5em; vertical-align: -.1em;
  border-radius: 2px;
}
.stroke {
  display: inline-block; width: 1.9em; margin-right: .5em; vertical-align: .28em; border-top: 2px solid;
}
.stroke.first { border-color: var(--first-edge); border-top-style: dashed; }
.stroke.second { border-color: var(--second); }
.swatch.first { background: var(--first); border: 1px solid var(--first-edge); }
.swatch.second { background: var(--second); }

.scroll {
  overflow-x: auto; margin-top: 1rem;
  background: linear-gradient(to left, var(--card) 1rem, transparent) right / 2rem 100% no-repeat local,
    linear-gradient(to left, var(--rule), transparent) right / .9rem 100% no-repeat scroll;
}
.scroll:focus-visible, pre:focus-visible, summary:focus-visible {
  outline: 2px solid var(--second); outline-offset: 2px;
}
table {
  border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal;
}
th, td { padding: .42rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
thead th { color: var(--soft); font-weight: 600; font-size: .825rem; vertical-align: bottom; }
thead .group { text-align: center; border-bottom: 0; padding-bottom: 0; }
.cost .group, .cost tbody tr > :is(:nth-child(2), :nth-child(4), :nth-child(7)) {
  border-left: 1px solid var(--rule);
}
.cost thead tr + tr > :is(:nth-child(1), :nth-child(3), :nth-child(6)) { border-left: 1px solid var(--rule); }
tbody th { font-weight: 500; min-width: 6.5rem; max-width: 15rem; overflow-wrap: anywhere; }
th:first-child, td:first-child { padding-left: .3rem; }
.n { text-align: right; white-space: nowrap; }
.zero, .none { color: var(--soft); }
.asked th, .asked td { background: var(--band); }
.asked .n { font-weight: 600; }
.total th, .total td { border-bottom: 0; border-top: 2px solid var(--rule); font-weight: 650; }
.prose td:last-child { width: 55%; overflow-wrap: anywhere; }
.heat { border-collapse: separate; border-spacing: 2px; }
.heat th, .heat td { border: 0; padding: .35rem .55rem; border-radius: 3px; }
.heat thead th span {
  display: inline-block; max-width: 8rem; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom;
}
.heat td, .heat thead th.n { min-width: 3.2rem; text-align: center; }
.heat tbody :is(th, td) { vertical-align: middle; }
.heat th:first-child { padding-left: .3rem; }
.turned td { min-width: 2.3rem; padding: .3rem .35rem; font-size: .8rem; }
.turned thead th.n { min-width: 0; vertical-align: bottom; padding: .3rem 0; }
.turned thead th.n span {
  writing-mode: vertical-rl; transform: rotate(180deg); max-width: none; max-height: 9rem;
}
.touched { color: var(--mark); }
.h0 { background: var(--faint); }
.h1 { background: var(--h1); }
.h2 { background: var(--h2); }
.h3 { background: var(--h3); }
.h4 { background: var(--h4); color: var(--h4-ink); } .h5 { background: var(--h5); color: var(--h5-ink); }
.gone {
  background: var(--band); color: var(--mark); font-weight: 650; box-shadow: inset 0 0 0 1.5px var(--mark);
}
.unseen {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}

.lists ul { padding-left: 1.15rem; } .lists li { margin: .45rem 0; } .lists li::marker { color: var(--soft); }
.facts { font-size: .9rem; }
.facts > div {
  display: grid; grid-template-columns: 11rem 1fr; gap: 0 1rem; padding: .3rem 0;
  border-bottom: 1px solid var(--rule);
}
.facts dt { color: var(--soft); }
.mono dd, pre {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: .8rem;
}
.mono dd { line-height: 1.8; }
pre {
  background: var(--faint); border-radius: 6px; padding: .9rem 1rem; overflow-x: auto; line-height: 1.5;
  overflow-wrap: normal;
}
pre + .two { margin-top: 1.2rem; }
details { margin-top: 1.4rem; }
summary { cursor: pointer; font-weight: 650; font-size: .95rem; margin-bottom: .5rem; }

@media screen and (max-width: 52rem) { .tiles { grid-template-columns: 1fr 1fr; } }
@media screen and (max-width: 44rem) {
  main { padding: 1.4rem .75rem 1rem; }
  section { padding: 1.1rem .9rem 1.2rem; }
  .verdict { padding: 1.1rem 1.1rem 1.2rem; }
  h1 { font-size: 1.45rem; } .headline { font-size: 1.25rem; }
  .tiles dt { min-height: 2.7em; }
  .tiles { gap: .7rem; } .tiles > div { padding: .8rem .85rem; } .tiles .value { font-size: 1.5rem; }
  .wide { display: none; } .slim { display: block; }
  figure svg { max-width: 28rem; }
  .two { grid-template-columns: 1fr; } .two > * + * { margin-top: 1rem; }
  .facts > div { grid-template-columns: 1fr; }
  .scroll thead tr:first-child th:first-child, .scroll tbody th {
    position: sticky; left: 0; z-index: 1; background: var(--card); max-width: 8rem;
    box-shadow: 1px 0 0 var(--rule);
  }
  .scroll .asked th { background: var(--band); }
  .prose, .prose tbody, .prose tr, .prose th, .prose td { display: block; border: 0; }
  .prose thead { display: none; }
  .scroll .prose tr { border-bottom: 1px solid var(--rule); padding: .55rem 0; }
  .scroll .prose tr:last-child { border-bottom: 0; }
  .scroll .prose :is(th, td) {
    position: static; box-shadow: none; max-width: none; width: auto; text-align: left; padding: .1rem 0;
  }
  .scroll .prose tbody th { font-weight: 650; }
  .scroll .prose .n { display: inline-block; margin-right: 1.2rem; font-weight: 400; color: var(--soft); }
  [data-label]::before { content: attr(data-label) ": "; }
}
@media print {
  @page { margin: 16mm; }
  body { background: #fff; font-size: 10.5pt; }
  main { padding: 0; max-width: none; }
  section, .tiles > div { border-radius: 0; }
  section { margin: .7rem 0; }
  .verdict, .tiles > div, figure, tr, li, pre { break-inside: avoid; }
  h2, h3, .legend { break-after: avoid; }
  .scroll { overflow: visible; background: none; }
  table { font-size: 8.5pt; }
  th, td { padding: .25rem .35rem; }
  thead th, .tag { font-size: 8pt; }
  tbody th { min-width: 4rem; }
  .turned { border-spacing: 0; }
  .heat.turned :is(td, thead th.n) { font-size: 4.8pt; min-width: 0; padding: .15rem 1px; border-radius: 0; }
  .turned tbody th { font-size: 6pt; min-width: 5rem; }
  pre { white-space: pre-wrap; }
  details::details-content { content-visibility: visible; block-size: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
)
"""Inline style of the page; it refers to nothing outside."""
