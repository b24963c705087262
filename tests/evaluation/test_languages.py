import pytest

from seq2seq.evaluation.languages import hardly_spaced, length_unit, tokenizer_advice, tokenizer_for

CHINESE = "一个男人在公园里和他的狗一起玩耍、旁边有两个孩子看着。"
JAPANESE = "公園で男の人が犬と遊んでいて、子供が二人見ています。"
THAI = "ผู้ชายคนหนึ่งกำลังเล่นกับสุนัขของเขา เด็กสองคนมองดูอยู่ข้างๆ"
FINNISH = "Lentokonesuihkuturbiinimoottoriapumekaanikko odottaa epäjärjestelmällisyyttä."
ENGLISH = "A man in a park plays with his dog."


@pytest.mark.parametrize(
    ("code", "tokenizer"),
    [
        *(
            (code, "zh")
            for code in ("zh", "zho", "chi", "cmn", "yue", "zh-TW", "zh_Hant", "zho_Hans", "yue_Hant", "ZH-cn")
        ),
        *((code, "ja-mecab") for code in ("ja", "jpn", "jpn_Jpan", "ja-JP")),
        *((code, "ko-mecab") for code in ("ko", "kor", "kor_Hang")),
        *((code, "char") for code in ("th", "tha_Thai", "lo", "lao", "km", "khm_Khmr", "my", "mya", "bo", "bod_Tibt")),
        *((code, "13a") for code in ("de", "deu_Latn", "eng_Latn", "nan_Latn", "src", "", None)),
    ],
)
def test_tokenizer_for_a_language_code(code, tokenizer):
    assert tokenizer_for(code) == tokenizer


@pytest.mark.parametrize(
    ("code", "text", "tokenizer"),
    [
        (None, CHINESE, "zh"),
        (None, JAPANESE, "ja-mecab"),
        ("src", THAI, "char"),
        (None, ENGLISH, "13a"),
        ("ja", CHINESE, "ja-mecab"),
    ],
)
def test_tokenizer_without_a_known_code_is_chosen_by_the_texts(code, text, tokenizer):
    assert tokenizer_for(code, [text]) == tokenizer


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([CHINESE, "好。"], True),
        ([THAI], True),
        ([JAPANESE], True),
        (["一个男人在公园里"], True),
        (["一个 男人 在 公园 里 和 他 的 狗 一起 玩耍"], False),
        ([CHINESE, ENGLISH, ENGLISH], False),
        ([FINNISH, ENGLISH], False),
        (["好。"], False),
        ([], False),
    ],
)
def test_texts_with_hardly_any_spaces_are_recognized(texts, expected):
    assert hardly_spaced(texts) is expected


@pytest.mark.parametrize(
    ("code", "text", "unit"),
    [
        ("cmn", "好", "characters"),
        ("zho_Hans", ENGLISH, "characters"),
        ("th", THAI, "characters"),
        ("ko", "남자가 공원에서 개와 놀고 있습니다.", "words"),
        ("de", ENGLISH, "words"),
        (None, CHINESE, "characters"),
        ("xx", THAI, "characters"),
        (None, FINNISH, "words"),
    ],
)
def test_length_unit_by_code_or_else_by_text(code, text, unit):
    assert length_unit(code, [text]) == unit


def test_advice_names_a_tokenizer_and_the_extra_that_it_needs():
    assert tokenizer_advice("13a", "zho_Hans") == (
        "tokenize=13a finds few words in zho_Hans, so that BLEU means little: see tokenize=zh"
    )
    assert "tokenize=ja-mecab (pip install 'seq2seq[ja]')" in str(tokenizer_advice("intl", None, [JAPANESE]))
    assert (
        tokenizer_advice("zh", "zh")
        is tokenizer_advice("13a", "de", [ENGLISH])
        is tokenizer_advice("char", "th")
        is None
    )
