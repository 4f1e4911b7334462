"""The page of ``mcpio inspect`` in headless Chromium: people call, answer and read, and hostile servers get nowhere.

``MCPIO_PEERS_DIR`` names the directory where npm has installed axe-core.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import inspector_picture
import jsonschema
import pytest
from playwright.sync_api import sync_playwright

PROGRAM = Path(__file__).with_name("inspected_server.py")
MCPIO = [sys.executable, "-m", "mcpio"]
AXE = Path(os.environ.get("MCPIO_PEERS_DIR", ""), "node_modules", "axe-core", "axe.min.js")
SIZES = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Give a browser."""
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])


@contextmanager
def inspected(name: str = "server", *options: str) -> Iterator[str]:
    """Inspect a server of the program; give the address of the page."""
    command = [*MCPIO, "inspect", "-q", *options, f"{PROGRAM}:{name}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Inspect the friendly server."""
    with inspected() as found:
        yield found


@contextmanager
def opened(browser: Any, address: str, width: int = 1400, scheme: str = "light", **options: Any) -> Iterator[Any]:
    """Open the page; fail for what it throws, and for what it asks of others."""
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme, **options)
    page = context.new_page()
    page.set_default_timeout(90_000)  # on a busy machine
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    own = (address.partition("#")[0], "data:", "file:", "blob:")
    page.on("request", lambda request: errors.extend([] if request.url.startswith(own) else [request.url]))
    page.goto(address)
    yield page
    assert errors == []
    context.close()


def choose(page: Any, tool: str) -> None:
    """Choose a tool."""
    menu(page, "Tools")
    page.locator(".choices button", has_text=tool).first.click()


def menu(page: Any, name: str) -> None:
    """Choose a part of the page."""
    page.locator("#menu").get_by_role("button", name=name).first.click()


def call(page: Any) -> None:
    """Press the button of the form."""
    page.get_by_role("button", name="Call", exact=True).click()


def faults_of(page: Any) -> list[str]:
    """Return what axe-core finds."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]]


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_calls_and_questions_are_accessible(browser: Any, address: str, width: int, scheme: str) -> None:
    with opened(browser, address, width, scheme, bypass_csp=True) as page:
        choose(page, "bake")
        call(page)
        page.get_by_role("heading", name="Result").wait_for()
        page.get_by_role("button", name="Show in the ladder").click()
        page.get_by_label("The chosen message").wait_for()
        assert faults_of(page) == []
        choose(page, "seat")
        call(page)
        page.get_by_text("How many seats?").first.wait_for()
        assert faults_of(page) == []
        page.get_by_role("button", name="Decline").click()
        menu(page, "Waiting")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("width", "scheme", "names"),
    [(*SIZES[0], ("Server", "Resources", "Any", "Waiting")), (*SIZES[-1], ("Prompts", "Roots", "Bytes", "Drift"))],
)
def test_other_views_are_accessible(
    browser: Any, address: str, width: int, scheme: str, names: tuple[str, ...]
) -> None:
    with opened(browser, address, width, scheme, bypass_csp=True) as page:
        for name in names:
            menu(page, name)
            page.locator("#main h2, #main .choices button").first.wait_for(state="attached")
            assert faults_of(page) == [], name


def test_person_calls_answers_and_copies(browser: Any, address: str) -> None:
    with opened(browser, address, permissions=["clipboard-read", "clipboard-write"]) as page:
        assert "#" not in page.url
        choose(page, "bake")
        page.get_by_label("count", exact=True).fill("3")
        call(page)
        page.locator(".outcome").get_by_text('"loaves": 3').first.wait_for()
        page.get_by_role("button", name="Copy as a command").click()
        page.get_by_text("Copied.").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.endswith("bake 'kind:=\"rye\"' count:=3")  # the note was not touched, so it is not sent
        assert page.locator(".row", has_text="in the oven").count() >= 1
        choose(page, "seat")
        call(page)
        question = page.get_by_role("region", name="Question")
        question.get_by_role("textbox").fill("many")
        question.get_by_role("button", name="Accept").click()
        question.get_by_text("a whole number is needed").wait_for()
        question.get_by_role("textbox").fill("4")
        question.get_by_role("button", name="Accept").click()
        menu(page, "Tools")
        page.locator(".outcome").get_by_text("seats=4").first.wait_for()


def test_started_task_is_shown_after_the_list_was_read(browser: Any) -> None:
    with inspected() as address, opened(browser, address) as page:
        page.get_by_label("Era of the next connection").select_option("handshake")
        page.locator("#top .status", has_text="2025-11-25").wait_for()
        menu(page, "Tasks")
        page.get_by_text("The server lists no tasks.").wait_for()
        choose(page, "knead")
        page.get_by_label("as a task").check()
        call(page)
        page.locator(".outcome").get_by_text("taskId").first.wait_for()
        menu(page, "Tasks")
        page.get_by_role("button", name="Get its result").click()
        page.locator(".outcome").get_by_text("kneaded").first.wait_for()


def test_template_needs_values(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        menu(page, "Resources")
        reader = page.locator("#main .split", has_text="note://{name}/text")
        reader.get_by_role("button", name="Read", exact=True).click()
        reader.get_by_text("Put a value in place of {name}.").wait_for()
        reader.get_by_role("textbox").last.fill("note://bob/text")
        reader.get_by_role("button", name="Read", exact=True).click()
        reader.get_by_text("a note of bob").first.wait_for()


def test_keyboard_alone_calls_a_tool_and_reads_a_message(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        page.locator(".choices button", has_text="bake").first.wait_for()
        page.get_by_label("Filter tools").focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_label("count", exact=True).focus()
        page.keyboard.type("2")
        page.get_by_role("button", name="Call", exact=True).focus()
        page.keyboard.press("Enter")
        page.locator(".outcome").get_by_text('"loaves": 12').or_(
            page.locator(".outcome").get_by_text('"loaves": 2')
        ).first.wait_for()
        page.get_by_role("listbox", name="Messages").focus()
        page.keyboard.press("End")
        page.get_by_label("The chosen message").wait_for()
        page.keyboard.press("Escape")
        page.get_by_label("The chosen message").wait_for(state="hidden")


def test_timeout_shows_what_is_waited_for(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        choose(page, "sleep")
        page.get_by_label("seconds").fill("0.1")
        call(page)
        page.get_by_role("heading", name="What is it waiting for?").wait_for()
        page.get_by_role("heading", name="tools/call sleep").first.wait_for()


OPENS = """(url) => new Promise((end) => {
  const socket = new WebSocket(url, "mcp");
  socket.onopen = () => end(true);
  socket.onerror = () => end(false);
})"""


def test_other_secret_and_other_origin_are_refused(browser: Any, address: str) -> None:
    with opened(browser, f"{address.partition('#')[0]}#{'A' * 32}") as page:
        page.get_by_text("Open the whole address").wait_for()
    context = browser.new_context()
    page = context.new_page()
    url = address.replace("http:", "ws:").replace("/#", "/mcp?token=")
    page.goto("data:text/html,<p>other")
    assert page.evaluate(OPENS, url) is False
    context.close()


def test_markup_of_a_hostile_server_is_text(browser: Any) -> None:
    with inspected("hostile") as address, opened(browser, address) as page:
        choose(page, "say")
        page.locator("#main form textarea").first.fill("x")
        call(page)
        page.get_by_role("heading", name="Result").wait_for()
        page.locator("summary", has_text="The definition").click()
        page.get_by_role("button", name="Show in the ladder").click()
        page.get_by_label("The chosen message").wait_for()
        menu(page, "Server")
        page.get_by_role("heading", name="Instructions").wait_for()
        choose(page, "ask")
        call(page)
        page.get_by_role("region", name="Question").wait_for()
        assert page.evaluate("window.ran") is None
        assert page.locator("a[href^='javascript']").count() == 0
        assert page.locator("#main script, #side script, svg").count() == 0


def test_long_names_lists_and_results_hold_nothing_up(browser: Any) -> None:
    with inspected("endless") as address, opened(browser, address) as page:
        page.get_by_text("of 100003").wait_for()
        assert page.locator(".choices button").count() <= 200
        page.get_by_label("Filter tools").fill("tool99999")
        page.get_by_text("1 of 100003").wait_for()
        page.get_by_label("Filter tools").fill("nnn")
        page.locator(".choices button").first.click()
        call(page)
        page.get_by_role("button", name="Show all").first.wait_for()
        assert page.evaluate("document.body.textContent.length") < 3_000_000


def test_ladder_of_many_messages_has_few_rows(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        choose(page, "flood")
        page.get_by_label("count").first.fill("5000")
        call(page)
        page.locator(".outcome").get_by_text("done").first.wait_for()
        page.locator(".ladder .quiet", has_text=re.compile(r"5,\d\d\d lines")).wait_for()
        assert page.locator(".row").count() < 100
        page.get_by_label("Search in all messages").fill("line 4321")
        page.get_by_text("1 line", exact=False).first.wait_for()


IN_LADDER = """async () => {
  const { Ladder } = await import("/ladder.js");
  const ladder = new Ladder({ text: async () => ({ text: "{}", entry: {} }), find: async () => [] });
  document.getElementById("side").replaceChildren(ladder.node);
  let last = 0;
  const add = async (count) => {
    const line = () => ({ n: ++last, at: last, from: "server", kind: "stderr", bytes: 1, head: "" });
    ladder.add(Array.from({ length: count }, line));
    await drawn();
  };
  const drawn = async () => {
    for (let frame = 0; frame < 3; frame++) await new Promise((done) => requestAnimationFrame(done));
  };
  const scroll = async (top) => {
    ladder.list.scrollTop = top;
    await drawn();
  };
  const rows = () => [...ladder.node.querySelectorAll(".row")];
  const numberOf = (row) => Math.round(Number.parseFloat(row.textContent));
  const seen = () => {
    const { left, bottom } = ladder.list.getBoundingClientRect();
    return numberOf(document.elementFromPoint(left + 20, bottom - 5).closest(".row"));
  };
  await add(1000);
  const made = rows();
  const found = { followed: [seen()], order: rows().map(numberOf) };
  await add(17);
  found.followed.push(seen());
  found.isReused = rows().every((row) => made.includes(row));
  await scroll(ladder.list.scrollTop - 20 * 24);
  found.scrolled = [seen()];
  await add(100);
  found.scrolled.push(seen());
  await scroll(ladder.list.scrollHeight);
  found.followed.push(seen());
  ladder.choose(7);
  await drawn();
  await add(5);
  const chosen = document.getElementById(ladder.list.getAttribute("aria-activedescendant"));
  found.chosen = [numberOf(chosen), chosen.getAttribute("aria-selected"), rows().map(numberOf).includes(7)];
  return found;
}"""


def test_newest_lines_are_followed_until_the_list_is_scrolled(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        page.locator(".choices button").first.wait_for()
        found = page.evaluate(IN_LADDER)
    assert found["followed"] == [1000, 1017, 1117]
    assert found["order"] == [*range(found["order"][0], 1001)]
    assert found["isReused"]
    assert found["scrolled"] == [997, 997]
    assert found["chosen"] == [7, "true", True]


def test_message_below_tells_for_a_while(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        page.clock.install()
        page.evaluate("import('/dom.js').then(({ tell }) => { tell('Ended.', true); tell('Copied.'); })")
        page.get_by_text("Copied.").wait_for()
        page.clock.run_for(10_000)
        page.get_by_text("Ended.").wait_for()


FORMS = [json.loads(line) for line in PROGRAM.with_name("forms.jsonl").read_text(encoding="utf-8").splitlines()]
THROUGH_FORM = """async ({ schema, value }) => {
  const { form } = await import("/form.js");
  const made = form(schema);
  made.write(value);
  return made.read();
}"""


def test_forms_give_back_what_schemas_admit(browser: Any, address: str) -> None:
    with opened(browser, address) as page:
        for each in FORMS:
            found = page.evaluate(THROUGH_FORM, each)
            assert found == each["value"], each
            jsonschema.validate(found, each["schema"])


def test_picture_of_the_docs_is_made_and_small(browser: Any) -> None:
    picture = inspector_picture.draw(browser)
    assert picture.startswith(b"\x89PNG")
    # Chromium decodes it: every chunk has its checksum.
    decoded = f"createImageBitmap(new Blob([new Uint8Array({[*picture]})])).then((image) => image.width)"
    page = browser.new_page()
    assert page.evaluate(decoded) == inspector_picture.SIZE["width"]
    page.close()
    assert max(len(picture), inspector_picture.FILE.stat().st_size) < 80_000


def test_recording_goes_on_after_a_restart(browser: Any, tmp_path: Path) -> None:
    recorded, saved = tmp_path / "recorded.jsonl", tmp_path / "saved.jsonl"
    with inspected("server", "--record", str(recorded)) as address, opened(browser, address) as page:
        choose(page, "bake")
        for era, revision in ((None, "2026-07-28"), ("handshake", "2025-11-25")):
            if era is not None:
                page.get_by_label("Era of the next connection").select_option(era)
            page.locator("#top .status", has_text=revision).wait_for()
            choose(page, "bake")
            call(page)
            page.get_by_role("heading", name="Result").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save the recording").click()
        download.value.save_as(saved)
    for file in (recorded, saved):
        shown = subprocess.run([*MCPIO, "replay", str(file)], capture_output=True, text=True, check=True).stdout
        assert shown.count("a new connection") == 1
        assert ("server/discover" in shown, '"method":"initialize"' in shown) == (True, True)


def test_trace_opens_from_disk(browser: Any, address: str, tmp_path: Path) -> None:
    recording, traced = tmp_path / "rec.jsonl", tmp_path / "page.html"
    called = [*MCPIO, "call", "-q", "--record", str(recording), f"{PROGRAM}:hostile", "say"]
    subprocess.run(called, check=True, capture_output=True)
    subprocess.run([*MCPIO, "trace", str(recording), "-o", str(traced)], check=True, capture_output=True)
    with opened(browser, traced.as_uri(), 390, "dark") as page:
        page.locator(".row", has_text="tools/call").first.click()
        page.get_by_label("The chosen message").wait_for()
        assert page.evaluate("window.ran") is None
    with opened(browser, traced.as_uri(), bypass_csp=True) as page:
        page.locator(".row").first.wait_for()
        assert faults_of(page) == []
