"""The report in a real browser: nothing fetched, nothing complained of, every picture there, in both themes."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest
from PIL import Image, ImageColor

from smdl.report.figures import DARK, LIGHT
from tests.report import made

pytestmark = pytest.mark.slow

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Added to a copy of the page: what the browser made of it, written into the page before it is dumped.
PROBE = """
<script>
const seen = {errors: [], refused: []};
addEventListener("error", event => seen.errors.push(String(event.message || event.target.src || event.target)), true);
addEventListener("securitypolicyviolation", event => seen.refused.push(event.blockedURI));
addEventListener("load", () => {
  const visible = group => [...group.querySelectorAll(":scope > .panels")].map(panel => panel.offsetHeight > 0);
  seen.pictures = [...document.images].map(picture => [picture.naturalWidth, picture.complete]);
  seen.fetched = performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !/^data:/.test(name));
  seen.switches = [...document.querySelectorAll(".switch")].map(group =>
    [visible(group), ...[...group.querySelectorAll("label")].map(label => (label.click(), visible(group)))]);
  seen.back = getComputedStyle(document.body).backgroundColor;
  seen.ink = getComputedStyle(document.body).color;
  seen.overflow = document.documentElement.scrollWidth - innerWidth;
  document.documentElement.dataset.seen = JSON.stringify(seen);
});
</script>
"""


@pytest.fixture(scope="module")
def browser():
    """The path of a Chromium."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no browser: none of {', '.join(NAMES)} is on the PATH (apt-get install chromium)")
    return found


def run(browser, page, home, action, size="1280,900", dark=False):
    """What the browser printed."""
    return subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-extensions", f"--user-data-dir={home}",
         "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={size}", "--enable-logging=stderr",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}", action, page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


def opened(browser, page, home, width=1280, dark=False):
    """(the page's DOM after loading, what the probe saw, what the console said)."""
    done = run(browser, page, home, "--dump-dom", f"{width},900", dark)
    seen = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert seen, f"the page did not load: {done.stderr[-2000:]}"
    return done.stdout, json.loads(html.unescape(seen[1])), re.findall(r".*CONSOLE.*", done.stderr)


@pytest.fixture(scope="module")
def probed(rendered, tmp_path_factory):
    """A copy of the report that reports on itself; its policy lets the probe run, and still nothing be fetched."""
    text = (rendered / "report.html").read_text()
    assert POLICY in text
    copy = tmp_path_factory.mktemp("browser") / "report.html"
    text = text.replace(POLICY, f"{POLICY}; script-src 'unsafe-inline'", 1)
    copy.write_text(text.replace("<title>", f"{PROBE}<title>", 1))
    return copy


@pytest.fixture(scope="module")
def loaded(browser, probed, tmp_path_factory):
    """What `opened` returns for the report on a wide screen."""
    return opened(browser, probed, tmp_path_factory.mktemp("home"))


def test_the_report_loads_whole_and_alone(loaded, rendered):
    dom, seen, console = loaded
    assert console == []
    assert seen["errors"] == seen["refused"] == seen["fetched"] == []
    assert len(seen["pictures"]) == (rendered / "report.html").read_text().count("<img ")
    assert all(width > 0 and complete for width, complete in seen["pictures"])
    assert made.same_numbers(made.Page(dom), made.results_of(rendered)) > 6 * 20
    assert "<script>alert" not in dom


def test_one_axis_is_shown_at_a_time_and_the_buttons_choose_it(loaded):
    _, seen, _ = loaded
    each = [[True, False, False], [False, True, False], [False, False, True]]
    assert seen["switches"] == [[each[2], *each], [each[1], *each]]  # first over seconds, first over steps


def test_it_is_light_or_dark_as_the_reader_is_and_fits_a_phone(browser, probed, tmp_path):
    _, light, _ = opened(browser, probed, tmp_path / "light", width=390)
    _, dark, console = opened(browser, probed, tmp_path / "dark", width=390, dark=True)
    shades = [[sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("back", "ink")] for seen in (light, dark)]
    assert shades[0][0] > 700 > 200 > shades[0][1]
    assert shades[1][0] < 200 < 600 < shades[1][1]
    assert light["overflow"] <= 0
    assert dark["overflow"] <= 0
    assert console == []


@pytest.mark.parametrize(("dark", "mine", "other"), [(False, LIGHT, DARK), (True, DARK, LIGHT)])
def test_pictures_have_the_colours_of_the_readers_theme(browser, rendered, tmp_path, dark, mine, other):
    shot = tmp_path / "page.png"
    run(browser, rendered / "report.html", tmp_path / "home", f"--screenshot={shot}", "1280,9000", dark)
    with Image.open(shot) as image:
        counts = {colour: count for count, colour in image.convert("RGB").getcolors(1 << 24) or ()}
    part = "training"  # wide bars of one colour
    assert counts.get(ImageColor.getrgb(mine.parts[part]), 0) > 100
    assert ImageColor.getrgb(other.parts[part]) not in counts
