"""The look of the report's page: one column on a phone, two charts a row where there is room."""

PAGE_STYLE = """\
:root{color-scheme:light dark;--text:#1c2430;--soft:#5f6773;--ground:#f4f6f8;--card:#fff;\
--line:#dfe3e8;--ok:#007a5a;--info:#0072b2;--warning:#8a6d00;--error:#b85c00;--critical:#c03000}
@media(prefers-color-scheme:dark){:root{--text:#e8edf2;--soft:#97a1ad;--ground:#0d1116;\
--card:#141a21;--line:#2b333d;--ok:#2fc59a;--info:#6bb8ec;--warning:#e8dc55;--error:#f0a13c;\
--critical:#ff7f50}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);overflow-wrap:anywhere;\
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:16px}
h1{font-size:1.25rem;margin:0}h2{font-size:1.3rem;margin:0 0 4px}
h3{font-size:1rem;margin:0 0 10px}
header{display:flex;flex-wrap:wrap;gap:4px 16px;justify-content:space-between;\
align-items:baseline;margin-bottom:12px}
.soft,header time{color:var(--soft);font-size:.87rem}
section,.overview{background:var(--card);border:1px solid var(--line);border-radius:10px;\
padding:16px;margin:0 0 12px}
.verdict{border-left:6px solid var(--tone)}
.HEALTHY{--tone:var(--ok)}.WARNING,.warning{--tone:var(--warning)}\
.UNHEALTHY,.KILLED,.error{--tone:var(--error)}.CRITICAL,.CRASHED,.critical{--tone:var(--critical)}\
.info{--tone:var(--info)}
.badge{display:inline-block;color:var(--tone);border:1.5px solid var(--tone);border-radius:6px;\
padding:0 8px;font-size:.8rem;font-weight:700;letter-spacing:.03em;white-space:nowrap}
.said{font-size:1.05rem;margin:8px 0}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:8px 16px;\
margin:12px 0 0}
dl div{min-width:0}dt{color:var(--soft);font-size:.8rem}dd{margin:0}
.bar{display:flex;height:14px;border-radius:7px;overflow:hidden;\
background:var(--line);margin:4px 0}
.bar i{display:block;min-width:2px}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:8px 0 0;list-style:none;\
font-size:.87rem}
.key i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.t0{background:var(--ok)}.t1{background:var(--critical)}.t2{background:var(--error)}\
.t3{background:var(--info)}.t4{background:var(--warning)}.t5{background:var(--soft)}
ul,ol{margin:6px 0;padding-left:20px}
article+article{border-top:1px solid var(--line);margin-top:14px;padding-top:14px}
pre{background:var(--ground);border:1px solid var(--line);border-radius:6px;margin:8px 0;\
padding:8px 10px;overflow-x:auto;white-space:pre-wrap;\
font:12.5px/1.5 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
pre .soft{font-size:.8rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));\
gap:20px 28px}.charts>div{padding-left:var(--gutter)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87rem;\
font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:4px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
td:first-child{max-width:180px;overflow:hidden;text-overflow:ellipsis}
th{color:var(--soft);font-weight:500}
.timeline{list-style:none;padding:0}
.timeline li{border-left:3px solid var(--tone,var(--line));padding:2px 0 6px 12px}
.timeline time{display:block;color:var(--soft);font-size:.8rem}
details summary{cursor:pointer;font-weight:600}details dl{margin-top:12px}
footer{color:var(--soft);font-size:.8rem;padding:4px 2px 24px}
.overview li{margin:4px 0}.overview ul{list-style:none;padding:0;margin:8px 0 0}
a{color:inherit}
@media(max-width:600px){dl{grid-template-columns:1fr 1fr}}
@media print{body{background:#fff}section{break-inside:avoid}}
"""
