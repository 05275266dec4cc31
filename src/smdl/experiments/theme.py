"""Theme: the page's style sheet. Light or dark as the reader's system is; one column on a phone, two on a desk."""

STYLE = """
:root {
  color-scheme: light dark;
  --back: #fbfbf9; --card: #fff; --fill: #f1f3f5; --ink: #1b2330; --soft: #5b6675; --rule: #e2e5e9;
  --accent: #0069a8; --good: #00786b; --bad: #b3421a; --warn: #fdf3e0; --warn-rule: #e3b661;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #11141a; --card: #171b22; --fill: #1d232c; --ink: #e6eaf0; --soft: #9aa5b4; --rule: #2a313c;
    --accent: #5bb3ef; --good: #35c4b2; --bad: #f2935c; --warn: #2b2416; --warn-rule: #8a6a25;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--back); color: var(--ink); overflow-wrap: break-word; font-variant-numeric: tabular-nums;
  font: 16px/1.6 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 72rem; margin: 0 auto; padding: 3.5rem 1.5rem 4rem; }
h1, h2, h3, h4 { line-height: 1.25; letter-spacing: -.012em; margin: 0; text-wrap: balance; }
h1 { font-size: 2.1rem; font-weight: 680; letter-spacing: -.022em; }
h2 {
  font-size: 1.4rem; font-weight: 650; margin: 3.5rem 0 .6rem; padding-top: 1.4rem; border-top: 1px solid var(--rule);
}
h3 { font-size: 1.05rem; font-weight: 640; margin: 2rem 0 .6rem; }
h4 { font-size: .9rem; font-weight: 560; color: var(--soft); margin: 1rem 0 .5rem; }
p { margin: .6rem 0; max-width: 48rem; }
a { color: var(--accent); text-underline-offset: .15em; }
code, pre { font: .86em/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
.kicker {
  color: var(--soft); font-size: .82rem; letter-spacing: .08em; text-transform: uppercase; margin: 0 0 .5rem;
}
.soft, figcaption, .note { color: var(--soft); font-size: .9rem; }
.note { margin: .5rem 0 1rem; }
.caption {
  margin: 1.2rem 0; max-width: none; padding: .7rem 1rem; background: var(--warn);
  border-left: 3px solid var(--warn-rule); border-radius: 0 .4rem .4rem 0;
}

.verdict {
  background: var(--card); border: 1px solid var(--rule); border-radius: .8rem; padding: 1.5rem 1.75rem;
  margin: 1.6rem 0 1rem;
}
.verdict p { max-width: none; }
.verdict .said { font-size: 1.3rem; line-height: 1.45; font-weight: 560; letter-spacing: -.01em; margin: 0 0 .7rem; }
.verdict .long { font-size: 1.05rem; font-weight: 500; }
.facts { display: flex; flex-wrap: wrap; gap: .9rem 2.4rem; margin: 1.4rem 0 0; padding: 0; list-style: none; }
.facts b { display: block; font-size: 1.35rem; line-height: 1.3; font-weight: 640; }
.facts li > span { color: var(--soft); font-size: .85rem; }

figure {
  margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: .7rem; padding: 1rem; min-width: 0;
}
figure > img { display: block; width: 100%; height: auto; max-width: 40rem; margin: 0 auto; }
figcaption { margin-top: .7rem; }
.panels {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 23rem), 1fr)); gap: 1rem; margin: 1rem 0;
}
.aside { margin: 1rem 0; }
.plain { margin: .4rem 0 0; padding-left: 1.1rem; }
.legend {
  display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .6rem 0; padding: 0; list-style: none; font-size: .9rem;
}
.legend i {
  display: inline-block; width: 1.3rem; border-top: .25rem var(--line) var(--light); margin-right: .45rem;
  vertical-align: .22em;
}
@media (prefers-color-scheme: dark) { .legend i { border-color: var(--dark); } }

.switch { margin: .5rem 0 0; }
.switch > input { position: absolute; opacity: 0; pointer-events: none; }
.switch > label {
  display: inline-block; padding: .25rem .9rem; border: 1px solid var(--rule); margin-right: -1px; cursor: pointer;
  font-size: .88rem; color: var(--soft); background: var(--card);
}
.switch > label:first-of-type { border-radius: .45rem 0 0 .45rem; }
.switch > label:last-of-type { border-radius: 0 .45rem .45rem 0; }
.switch > input:checked + label { color: var(--ink); background: var(--fill); font-weight: 620; }
.switch > input:focus-visible + label { outline: 2px solid var(--accent); outline-offset: 1px; }
.switch > .panels { display: none; }
.switch > input:nth-of-type(1):checked ~ .panels:nth-of-type(1),
.switch > input:nth-of-type(2):checked ~ .panels:nth-of-type(2),
.switch > input:nth-of-type(3):checked ~ .panels:nth-of-type(3) { display: grid; }

.wide {
  overflow-x: auto; border: 1px solid var(--rule); border-radius: .7rem; background: var(--card); margin: .6rem 0;
}
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { padding: .5rem .65rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
thead th {
  font-weight: 560; font-size: .82rem; line-height: 1.3; color: var(--soft); vertical-align: bottom;
  white-space: normal;
}
thead tr.groups th { text-align: center; padding-bottom: 0; }
thead tr:last-child th { border-bottom: 1px solid var(--rule); }
tbody tr + tr > * { border-top: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; }
tbody th {
  font-weight: 620; position: sticky; left: 0; background: var(--card); min-width: 8rem; max-width: 14rem;
  white-space: normal;
}
tr.baseline > * { background: var(--fill); }
td small, .half { color: var(--soft); font-size: .92em; }
.better { color: var(--good); font-weight: 620; }
.worse { color: var(--bad); font-weight: 620; }
.left td, .left th { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.left td:first-child { color: var(--soft); width: 9rem; }

.gallery { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 23rem), 1fr)); gap: 0 2rem; }
.tiles {
  display: grid; grid-template-columns: repeat(8, minmax(0, 1fr)); gap: .6rem .45rem; margin: .4rem 0 1rem; padding: 0;
  list-style: none;
}
.tiles li { font-size: .72rem; line-height: 1.3; color: var(--soft); text-align: center; min-width: 0; }
.tiles img {
  display: block; width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated; border-radius: .25rem;
  background: var(--fill); margin-bottom: .2rem;
}
.tiles span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }

details {
  border: 1px solid var(--rule); border-radius: .6rem; background: var(--card); margin: .6rem 0; padding: .55rem 1rem;
}
summary { cursor: pointer; font-weight: 560; }
pre { overflow-x: auto; background: var(--fill); border-radius: .4rem; padding: .8rem 1rem; margin: .7rem 0 .3rem; }
.problems {
  border: 1px solid var(--warn-rule); background: var(--warn); border-radius: .6rem; padding: .8rem 1rem .8rem 2.2rem;
}
footer { margin-top: 3.5rem; color: var(--soft); font-size: .85rem; }

@media (min-width: 48rem) {
  .aside, .panels > figure:only-child {
    display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 2rem; align-items: center;
    padding-right: 2rem;
  }
}
@media (max-width: 40rem) {
  main { padding: 2rem 1rem 3rem; }
  h1 { font-size: 1.65rem; }
  h2 { margin-top: 2.75rem; }
  .tiles { grid-template-columns: repeat(6, minmax(0, 1fr)); }
  .verdict { padding: 1.1rem 1.15rem; }
  .verdict .said { font-size: 1.12rem; }
  .verdict .long { font-size: 1rem; }
  figure { padding: .7rem; }
  th, td { padding: .45rem .55rem; }
  tbody th { min-width: 0; max-width: 9rem; }
}
@media print {
  :root { --back: #fff; --card: #fff; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  figure, tr, .verdict, .tiles li { break-inside: avoid; }
  h2, h3, h4 { break-after: avoid; }
  .switch > label { display: none; }
  .panels, .aside { grid-template-columns: 1fr 1fr; }
  .wide { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: .25rem .3rem; white-space: normal; }
  tbody th { min-width: 0; }
}
"""
