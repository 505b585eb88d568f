"""Open a page in headless Chromium and say everything that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = (400, 1400)
MOST_BYTES = 3_000_000
SCHEMES = ("light", "dark")

# axe is put into the page by the debugger, so the page's own Content-Security-Policy stays in force.
_AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text(encoding="utf-8")

_LOOK = """() => ({
  width: document.documentElement.scrollWidth,
  pwned: window.pwned ?? null,
  scripts: document.scripts.length,
  lang: document.documentElement.lang,
  title: document.title,
  h1: document.querySelectorAll('h1').length,
  main: document.querySelectorAll('main').length,
  visible: document.querySelector('main').getBoundingClientRect().height,
  broken: [...document.querySelectorAll('a[href^="#"]')]
    .filter(a => !document.getElementById(decodeURIComponent(a.hash.slice(1)))).map(a => a.hash),
  alts: [...document.images].map(i => i.alt),
  empty: [...document.images].filter(i => !i.naturalWidth).length,
  ids: [...document.querySelectorAll('[id]')].map(e => e.id),
})"""


@dataclass
class Seen:
    """One page in one scheme at one width."""

    requests: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)  # requests that the page's policy stopped
    errors: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    rules_passed: int | None = None  # None: axe was not asked
    facts: dict[str, Any] = field(default_factory=dict)


def look_at(browser: Browser, page: Path, *, scheme: str, width: int, axe: bool = True) -> Seen:
    """Load a page from its file, give it time to misbehave, and collect what it did and how it looks."""
    seen = Seen()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    tab = context.new_page()
    tab.on("request", lambda request: seen.requests.append(request.url))
    tab.on("requestfailed", lambda request: seen.blocked.append(request.url) if request.failure == "csp" else None)
    tab.on("pageerror", lambda error: seen.errors.append(str(error)))
    tab.on("dialog", lambda dialog: (seen.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    try:
        tab.goto(page.resolve().as_uri())
        tab.wait_for_timeout(200)
        seen.facts = tab.evaluate(_LOOK)
        if axe:
            tab.evaluate(_AXE)
            result = tab.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
            seen.rules_passed = len(result["passes"])
            seen.violations = [
                f"{v['impact']} {v['id']}: {node['html'][:200]}" for v in result["violations"] for node in v["nodes"]
            ]
    finally:
        context.close()
    return seen


def faults(seen: Seen, page: Path, *, width: int) -> list[str]:
    """What no page may do: run something, ask for something, scroll sideways, mislead a reader or a screen reader."""
    facts = seen.facts
    own = page.resolve().as_uri()
    found = [f"asks for {url[:200]}" for url in seen.requests if url != own and not url.startswith("data:")]
    found += [f"error: {error}" for error in seen.errors]
    found += [f"axe: {v}" for v in seen.violations if v.startswith(("serious", "critical"))]
    found += [f"link without target: {link}" for link in facts["broken"]]
    found += [f"picture without description: {alt!r}" for alt in facts["alts"] if len(alt.strip()) < 10]
    found += ["a picture does not load"] * facts["empty"]
    checks = {
        "something ran": facts["pwned"] is not None,
        "there are scripts": facts["scripts"] > 0,
        f"it scrolls sideways: {facts['width']} > {width}": facts["width"] > width,
        "no language": facts["lang"] != "en",
        "no title": not facts["title"].strip(),
        "not exactly one h1 and one main": (facts["h1"], facts["main"]) != (1, 1),
        "nothing is visible": facts["visible"] < 20,
        "an id stands twice": len(facts["ids"]) != len(set(facts["ids"])),
        f"it is too heavy: {page.stat().st_size / 1e6:.1f} MB": page.stat().st_size > MOST_BYTES,
        "axe did not look": seen.rules_passed is not None and seen.rules_passed < 15,
    }
    return found + [what for what, wrong in checks.items() if wrong]
