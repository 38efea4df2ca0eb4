"""Replays to report on, made of what untrusted outputs have been seen to bring along."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

from kernel_runtime.replay.audit import Replayed
from kernel_runtime.replay.plan import NameDigest, Plan, Ran, Run, Step
from kernel_runtime.replay.report.history import Event, History
from kernel_runtime.replay.verdict import judged

SECOND = 1_000_000_000
BEGAN = 1_700_000_000 * SECOND
MARKER = "hostile-text"
"""stands in every sample, so that a test can see where its text went"""
ELSEWHERE = "http://127.0.0.1:9/leak"
"""where a sample wants to go: nobody listens"""

HTML = [
    f"<script>window.hit = 1; alert(1)</script>{MARKER}",
    f"<img src=x onerror='window.hit = 1; alert(1)'>{MARKER}",
    f"<img src='{ELSEWHERE}.png'>{MARKER}",
    f"<svg onload='window.hit = 1'><script>alert(1)</script></svg>{MARKER}",
    f"<svg><style>*{{background:url({ELSEWHERE})}}</style></svg>{MARKER}",
    f"<style>@import '{ELSEWHERE}'; input[value^=a]{{background:url({ELSEWHERE})}}</style>{MARKER}",
    f"<style>body{{display:none}} .verdict{{visibility:hidden}}</style>{MARKER}",
    f"<p style='background:url({ELSEWHERE});position:fixed;inset:0'>{MARKER}</p>",
    f"<a href='javascript:alert(1)'>{MARKER}</a><a href='{ELSEWHERE}' ping='{ELSEWHERE}'>go</a>",
    f"<a href=' java&#x0a;script:alert(1)'>{MARKER}</a>",
    f"<iframe src='{ELSEWHERE}'></iframe><iframe srcdoc='<script>parent.hit=1</script>'></iframe>{MARKER}",
    f"<object data='{ELSEWHERE}'></object><embed src='{ELSEWHERE}'>{MARKER}",
    f"<video src='{ELSEWHERE}' poster='{ELSEWHERE}' autoplay></video>{MARKER}",
    f"<form action='{ELSEWHERE}'><input autofocus onfocus='window.hit=1'><button>{MARKER}</button></form>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>{MARKER}",
    f"<base href='{ELSEWHERE}/'><link rel=stylesheet href='{ELSEWHERE}'>{MARKER}",
    f"<link rel=dns-prefetch href='{ELSEWHERE}'><link rel=preload as=image href='{ELSEWHERE}'>{MARKER}",
    f"</section></div></article></main></body></html><h1 id=fake>{MARKER}</h1>",
    f"<li>{MARKER}</li><dd>{MARKER}</dd></li></ul></dl><td>{MARKER}</td></tr></table>",
    f"<template><script>alert(1)</script></template></template><p>{MARKER}</p>",
    f"<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>{MARKER}",
    f"<math><mtext><table><mglyph><style><!--</style><i title='--&gt;&lt;img src onerror=hit()&gt;'>{MARKER}",
    f"<svg></p><style><a id='</style><img src=1 onerror=alert(1)>'>{MARKER}",
    f"<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>{MARKER}",
    f"<math><annotation-xml encoding='text/html'><style><img src=x onerror=alert(1)></style></math>{MARKER}",
    f"<textarea></textarea><textarea><img src=x onerror=alert(1)></textarea>{MARKER}",
    f"<title><a title='</title><img src=x onerror=alert(1)>'>{MARKER}",
    f"<xmp><img src=x onerror=alert(1)></xmp><plaintext>{MARKER}",
    f"<select><style></select><img src=x onerror=alert(1)></style>{MARKER}",
    f"<!--><img src=x onerror=alert(1)>--><!-- --!><script>alert(1)</script>{MARKER}",
    f"<![CDATA[><img src=x onerror=alert(1)>]]><?php <img src=x onerror=alert(1)> ?>{MARKER}",
    f"<table background='{ELSEWHERE}'><tr><td background='{ELSEWHERE}' onclick=alert(1)>{MARKER}</table>",
    f"<img srcset='{ELSEWHERE} 1x' src='data:image/svg+xml,<svg onload=alert(1)>'>{MARKER}",
    f"<img src='data:text/html,<script>alert(1)</script>'>{MARKER}",
    f"<div id=step-1 class='verdict v-same' role=alert hidden>{MARKER}</div>",
    f"<p>\u202e{MARKER}\u2066 &#x202e;&#8294; \u200b</p>",
    f"<details open ontoggle=alert(1)><summary>{MARKER}</summary></details>",
    f"<custom-element onclick=alert(1) slot=x>{MARKER}</custom-element><slot></slot>",
    "<div>" * 3000 + MARKER,
    "<b><p>" * 300 + "<table>" * 50 + MARKER,
]
SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{}</svg>'
ACTIVE_SVGS = [
    SVG.format("<script>alert(1)</script>"),
    SVG.format("<g onload='alert(1)'/>"),
    SVG.format(f"<image href='{ELSEWHERE}'/>"),
    SVG.format(f"<image xlink:href='{ELSEWHERE}'/>"),
    SVG.format("<image href='data:image/svg+xml;base64,AAAA'/>"),
    SVG.format(f"<rect style='fill:url({ELSEWHERE})'/>"),
    SVG.format(f"<style>rect{{fill:url({ELSEWHERE})}}</style>"),
    SVG.format("<style>@im\\70ort 'x'</style>"),
    SVG.format(f"<style>rect{{fill:url('{ELSEWHERE}#a')}}</style>"),
    SVG.format(f"<rect fill='u\\72l({ELSEWHERE})'/>"),
    SVG.format(f"<rect style='fill:u\\72l({ELSEWHERE})'/>"),
    SVG.format("<foreignObject><p>x</p></foreignObject>"),
    SVG.format("<a href='#x'><text>x</text></a>"),
    SVG.format("<set attributeName='href' to='javascript:alert(1)'/>"),
    "<!DOCTYPE svg [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><svg>&b;</svg>",
    f"<?xml-stylesheet href='{ELSEWHERE}'?><svg/>",
    "<html xmlns='http://www.w3.org/1999/xhtml'/>",
    "<svg",
    "",
]
TEXTS = [
    f"</pre></section><script>alert(1)</script>{MARKER}",
    f"{MARKER}\x1b[38m\x1b[48;5m\x1b[38;5;999m\x1b[31mred\x1b[0m \x1b[<script>m\x1b]0;title\x07 \x1b[2J",
    f"\x00\x01\x07\x08\x1b\x7f\x80\x9b31m {MARKER} \ufffe\uffff \ud800",
    f"\u202eabc\u2066{MARKER}\u200b\u2028\U000e0041\ufeff",
    f"over\rwritten {MARKER}\b\b\n",
    f"\x1b[8;30;40mhidden {MARKER}\x1b[38;2;255;255;255mwhite\x1b[7m",
]


def png(width: int = 8, height: int = 4) -> str:
    """A picture, base64."""
    data = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def display(mime: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {mime: value, **more}, "metadata": {}}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def step(number: int, *outputs: dict[str, Any], **more: Any) -> Step:
    how: dict[str, Any] = {
        "execution_id": f"e{number}",
        "cell_id": f"c{number}",
        "principal": "agent:a",
        "source": f"cell({number})",
        "outcome": "ok",
        "started_at": BEGAN + number * SECOND,
        "finished_at": BEGAN + number * SECOND + SECOND // 2,
        "seq": 10 * number,
    }
    return Step(number=number, outputs=list(outputs), **(how | more))


def replayed(pairs: list[tuple[Step, Step | None]], **more: Any) -> Replayed:
    """Recorded steps beside what a replay made of them; None: it was not run."""
    plan = Plan(
        source=more.pop("source", "s"),
        kind=more.pop("kind", "journal"),
        order="executed",
        kernel="python3",
        cwd="/w",
        steps=[recorded for recorded, _ in pairs],
        head=1000,
        head_hash="ab" * 32,
        **more,
    )
    ran = [Ran(number=one.number, step=other, skip=one.skip) for one, other in pairs]
    again = [NameDigest(name="x", digest="d2", type="int")] if plan.names is not None else None
    runs = [Run(ran=ran, names=again, seconds=2.5)]
    return Replayed(result=judged(plan, runs, {}), plan=plan, runs=runs)


def hostile() -> Replayed:
    """Everything above, in outputs, sources, names and reasons."""
    outputs = [display("text/html", one) for one in HTML]
    outputs += [display("image/svg+xml", one) for one in ACTIVE_SVGS]
    outputs += [printed(one) for one in TEXTS]
    pairs: list[tuple[Step, Step | None]] = []
    for number, output in enumerate(outputs, 1):
        recorded = step(number, output, source=f"</code><script>alert(1)</script>\u202e{number}")
        pairs.append((recorded, step(number, printed("other"))))
    evil = "<img src=x onerror=alert(1)>"
    number = len(pairs) + 1
    error = {"ename": evil, "evalue": evil, "traceback": [f"\x1b[31m{evil}\x1b[0m {MARKER}"]}
    acting = {
        "effects": {
            "verdict": evil,
            "declared": evil,
            "seen": [{"kind": evil, "how": evil}],
            "unseen": [evil],
        },
        "principal": f"agent:{evil}",
        "execution_id": f"'\"><script>alert(1)</script>{number}",
    }
    pairs.append((step(number, outcome="error", error=error, **acting), None))
    return replayed(
        pairs, source=f"s{evil}", names=[NameDigest(name=evil, digest=None, why=evil)], notes=[evil]
    )


def ordinary() -> Replayed:
    """What people see: every verdict, two kernels, tables, pictures, colours, gaps."""
    frame = (
        "<table border='1' class='dataframe'><thead><tr><th></th><th>a</th></tr></thead><tbody><tr><th>0</th>"
    )
    frame += "<td>1</td></tr></tbody></table>"
    trace = ["\x1b[31mZeroDivisionError\x1b[39m  Traceback", "\x1b[38;5;28m----> 1\x1b[39m \x1b[1m1/0\x1b[0m"]
    error = {"ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": trace}
    circle = SVG.format("<circle cx='5' cy='5' r='4'/>")
    colours = "".join(f"\x1b[{code}mcolour {code} \x1b[0m" for code in (*range(30, 38), *range(90, 98)))
    seen = [{"kind": "file", "how": "write", "path": "/w/out.csv"}]
    wrote = {"verdict": "effectful", "declared": None, "seen": seen, "unseen": ["extension: numpy"]}
    pairs: list[tuple[Step, Step | None]] = [
        (step(1, printed("one\n"), effects=wrote), step(1, printed("two\n"))),
        (step(2, printed("<A at 0x7f0000000001>\n")), step(2, printed("<A at 0x7f0000000002>\n"))),
        (step(3, display("text/html", frame)), step(3, display("text/html", frame))),
        (step(4, display("image/png", png())), step(4, display("image/svg+xml", circle))),
        (step(5, error=error, outcome="error"), step(5, error=error, outcome="error")),
        (step(6, skip="the kernel died while it ran", outcome="died"), None),
        (step(7, printed(colours), incarnation=2, principal="human:b"), step(7, printed(colours))),
        (step(8, printed("a" * 300 + "\n"), gaps=[{"reason": "disk", "messages": 3, "bytes": 9}]), step(8)),
    ]
    found = replayed(pairs, names=[NameDigest(name="x", digest="d1", type="int")], notes=["a note"])
    changed = {"name": "numpy", "recorded": "1.26", "replayed": "2.0", "why": "version"}
    differ = {"known": True, "same": False, "recorded": "f1", "replayed": "f2", "packages": [changed]}
    found.result.environment = differ
    found.result.sandbox = {"kind": "bubblewrap", "boundary": True, "notes": ["the directory was copied"]}
    found.result.integrity = {"ok": True, "problems": []}
    return found


def history() -> History:
    """Events between the steps of `ordinary`."""
    told = [
        (1, "KernelStarted", "kernel 1 started (ipython, python)"),
        (65, "KernelDied", "kernel 1 died (signal 9)"),
        (81, "PayloadRedacted", "redacted (text): a password; entries 20"),
        (82, "HeadSigned", "signed up to entry 80 with ssh-ed25519 AAAA"),
    ]
    return History(
        events=[
            Event(seq=seq, at=BEGAN + seq * SECOND // 10, principal="human:b", kind=kind, text=text)
            for seq, kind, text in told
        ]
    )
