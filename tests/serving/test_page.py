"""The page at `/` in headless Chromium, as a reader uses it: by mouse, by keyboard, on a phone, in the dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import chromium, color_scheme, resize
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait
from service import REFERENCES, SOURCES, running

from seq2seq.serving.request_limits import Limits

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(driver: Chrome, service: str) -> Chrome:
    resize(driver, 1280, 1000)
    driver.get(service)
    return driver


def one(parent: Chrome | WebElement, selector: str) -> WebElement:
    return parent.find_element(By.CSS_SELECTOR, selector)


def card(page: Chrome, model: str) -> WebElement:
    return one(page, f'.card[data-model="{model}"]')


def ready(page: Chrome, text: str = "3 of 3 translations ready") -> None:
    WebDriverWait(page, 30, 0.05).until(lambda _: one(page, "#status").text == text)


def translate(page: Chrome, sentence: str) -> None:
    field = one(page, "#text")
    field.clear()
    field.send_keys(sentence, Keys.ENTER)
    ready(page)


def test_page_shows_the_translations_of_all_models(page, models):
    translate(page, "the old cat sees a dog.")
    tops = set()
    for model in models:
        (expected,) = model.translator.translate("the old cat sees a dog.")
        shown = card(page, model.name)
        assert one(shown, ".translation").text == expected.text.strip()
        tops.add(shown.rect["y"])
    assert len(tops) == 1
    assert "against the reference" not in one(page, "main").text


def test_page_shows_heatmaps_and_explains_a_missing_one(page, models):
    translate(page, "the old cat sees a dog.")
    (expected,) = models[0].translator.translate("the old cat sees a dog.")
    labels = [label.text for label in one(card(page, "attentive"), "svg").find_elements(By.TAG_NAME, "text")]
    assert labels[: len(expected.tokens)] == ["eht", "dlo", "tac", "sees", "a", "god", "\u00b7."]
    assert labels[len(expected.tokens) :] == ["the", "old", "cat", "sees", "a", "dog", "\u00b7.", "\u25a0"]
    fixed = card(page, "fixed")
    assert not fixed.find_elements(By.TAG_NAME, "svg")
    assert "Nothing to look back at" in fixed.text and "width 16" in fixed.text


def test_page_reads_out_a_word_by_arrow_keys_and_pointer(page, models):
    translate(page, "the old cat sees a dog.")
    (expected,) = models[0].translator.translate("the old cat sees a dog.", alignment=True)
    heatmap = one(card(page, "attentive"), "svg")
    reading = one(card(page, "attentive"), ".reading")
    page.execute_script("arguments[0].focus()", heatmap)
    ActionChains(page).send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN).perform()
    weight = 100 * float(expected.alignment[2].max())
    assert reading.text.startswith(f"\u201ctac\u201d looks at cat {weight:.0f}%")
    ActionChains(page).send_keys(Keys.ARROW_LEFT).perform()
    assert f"\u201cold\u201d gets {100 * float(expected.alignment[2][1]):.0f}" in reading.text
    label, box = heatmap.find_elements(By.TAG_NAME, "text")[4].rect, heatmap.rect
    down = int(label["y"] + label["height"] / 2 - box["y"] - box["height"] / 2)
    ActionChains(page).move_to_element_with_offset(heatmap, 40, down).perform()
    assert reading.text.startswith("\u201ca\u201d looks at")
    assert reading.get_attribute("aria-live") == "polite"


def test_page_shows_the_chosen_head(page, models):
    translate(page, "the old cat sees a dog.")
    (expected,) = models[1].translator.translate("the old cat sees a dog.", alignment=True)
    heads = expected.nbest[0].heads
    shown = card(page, "many-headed")
    choice = Select(one(shown, "select"))
    assert [option.text for option in choice.options] == ["mean of all", "1", "2"]
    readings = []
    for label, weights in (("1", heads[0]), ("2", heads[1]), ("mean of all", heads.mean(0))):
        choice.select_by_visible_text(label)
        readings.append(one(shown, ".reading").text)
        assert f" {100 * float(weights[0].max()):.0f}%" in readings[-1]
    assert len(set(readings)) == 3


def test_page_shows_one_model_alone(page):
    translate(page, "a cat.")
    one(page, 'input[name="view"][value="fixed"] + span').click()
    cards = page.find_elements(By.CLASS_NAME, "card")
    assert [shown.get_attribute("data-model") for shown in cards if shown.is_displayed()] == ["fixed"]
    ActionChains(page).send_keys(Keys.ARROW_LEFT).perform()
    assert card(page, "many-headed").is_displayed() and not card(page, "fixed").is_displayed()
    one(page, 'input[name="view"][value=""] + span').click()
    assert all(shown.is_displayed() for shown in cards)


def test_page_scores_examples_against_their_reference(page):
    buttons = page.find_elements(By.CSS_SELECTOR, "#examples button")
    assert [button.text for button in buttons] == ["5 words", "10 words"]
    buttons[0].click()
    ready(page)
    assert one(page, "#text").get_attribute("value") == SOURCES[0]
    assert one(page, "#reference").text == REFERENCES[0]
    assert "BLEU 100, chrF 100, chrF++ 100, charBLEU 100 against the reference" in card(page, "attentive").text
    assert buttons[0].get_attribute("aria-pressed") == "true"


def test_page_shows_scores_by_length(page):
    slider = one(page, "#slider")
    assert one(page, "#bucket").text == "1\u20139 words"
    slider.send_keys(Keys.ARROW_RIGHT)
    assert one(page, "#bucket").text == "10\u201319 words"
    rows = [
        [cell.text.split("\n")[0] for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
        for row in page.find_elements(By.CSS_SELECTOR, "#scores tr")
    ]
    assert rows == [["attentive", "38.0", "48.0", "0.98", "95%"], ["fixed", "9.0", "19.0", "0.98", "26%"]]
    assert "attentive 38.0 BLEU, fixed 9.0 BLEU" in slider.get_attribute("aria-valuetext")
    assert len(page.find_elements(By.CSS_SELECTOR, "#chart polyline")) == 2
    one(page, "#sample").click()
    ready(page)
    assert one(page, "#text").get_attribute("value") == SOURCES[2]
    one(page, "#sample").click()
    ready(page)
    assert one(page, "#text").get_attribute("value") == SOURCES[3]


def test_page_shows_errors(driver, models):
    with running(models[:1], Limits(text=20)) as url:
        driver.get(url)
        field, problem = one(driver, "#text"), one(driver, "#problem")
        assert not problem.is_displayed()
        field.clear()
        field.send_keys("   ", Keys.ENTER)
        assert problem.text == "Type a sentence first."
        field.send_keys("the cat sees a very long dog", Keys.ENTER)
        WebDriverWait(driver, 30, 0.05).until(lambda _: "at most 20" in problem.text)
        assert problem.text == "Text 1 has 31 characters; at most 20 are allowed."
        assert problem.get_attribute("role") == "alert"
        field.clear()
        field.send_keys("a cat.", Keys.ENTER)
        ready(driver, "1 of 1 translations ready")
        assert not problem.is_displayed()
    field.send_keys(Keys.ENTER)
    WebDriverWait(driver, 30, 0.05).until(lambda _: "does not answer" in problem.text)
    driver.get_log("browser")


def test_page_leaves_out_an_attention_too_large_to_draw(driver, models):
    with running(models[:1], Limits(attention=50)) as url:
        driver.get(url)
        field, shown = one(driver, "#text"), card(driver, "attentive")
        field.clear()
        field.send_keys("the old cat sees a dog.", Keys.ENTER)
        ready(driver, "1 of 1 translations ready")
        assert one(shown, ".translation").text == "eht dlo tac sees a god."
        assert one(shown, ".map").text == "The attention of this text is too large to draw."
        assert not shown.find_elements(By.TAG_NAME, "svg")
        field.clear()
        field.send_keys("a", Keys.ENTER)
        WebDriverWait(driver, 30, 0.05).until(lambda _: shown.find_elements(By.TAG_NAME, "svg"))
        assert "too large" not in shown.text
    driver.get_log("browser")


def test_page_shows_typed_markup_as_text(page):
    translate(page, "<img src=x onerror=alert(1)> </script><b>cat</b>")
    assert not page.find_elements(By.CSS_SELECTOR, "main img, main b")


def test_page_has_names_for_everything_and_works_by_keyboard(page):
    translate(page, "a cat.")
    unnamed = page.execute_script("""
        const named = (node) => node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length;
        const all = document.querySelectorAll("button, input, select, textarea, svg, section, article, fieldset");
        return [...all].filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 80));""")
    assert unnamed == []
    reached = set()
    page.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    for _ in range(25):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.execute_script("const e = document.activeElement; return e.id || e.name || e.tagName"))
    assert {"text", "view", "svg", "SELECT", "slider", "sample", "BUTTON", "A"} <= reached


@pytest.mark.parametrize("width", [390, 1280])
def test_page_of_any_width_does_not_scroll_sideways(page, width):
    resize(page, width, 800)
    page.refresh()
    translate(page, SOURCES[3])
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_page_follows_the_color_scheme(page):
    def brightness(selector: str, what: str) -> float:
        color = one(page, selector).value_of_css_property(what)
        return sum(float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]) / 3

    for scheme, dark in (("light", False), ("dark", True)):
        color_scheme(page, scheme)
        assert (brightness("body", "background-color") < 128) is dark
        assert (brightness("body", "color") > 128) is dark
        assert (brightness("textarea", "background-color") < 128) is dark
    color_scheme(page, "light")


def test_page_loads_nothing_from_outside_and_logs_nothing(page, service):
    translate(page, "a cat.")
    page.get(f"{service}/docs")
    assert "POST /translate" in one(page, "main").text
    page.get(service)
    translate(page, "a cat.")
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded and set(loaded) == {f"{service}/translate"}
    assert page.get_log("browser") == []


def test_page_of_a_bundle_alone_has_examples_but_no_scores(driver, tmp_path, models):
    model = type(models[0])(**{**vars(models[0]), "run": None})
    with running([model]) as url:
        driver.get(url)
        assert not driver.find_elements(By.ID, "slider")
        lengths = [int(button.text.split()[0]) for button in driver.find_elements(By.CSS_SELECTOR, "#examples button")]
        assert len(lengths) >= 4 and lengths == sorted(lengths)
        one(driver, "button.main").click()
        ready(driver, "1 of 1 translations ready")
        assert "translates your sentence" in one(driver, "header").text
