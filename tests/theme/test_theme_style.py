import matplotlib as mpl
import pytest
from matplotlib import colors
from matplotlib.figure import Figure

from workbench import theme
from workbench.spec import Origin
from workbench.theme.style import level_styles


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colors.to_rgb(colour)]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


def contrast_on_white(colour: str) -> float:
    return 1.05 / (luminance(colour) + 0.05)


def test_white_and_black_contrast() -> None:
    assert contrast_on_white("black") == pytest.approx(21)
    assert contrast_on_white("white") == pytest.approx(1)


@pytest.mark.parametrize("role", theme.ROLES)
def test_role_colours_can_be_read_as_text_on_white(role: str) -> None:
    assert contrast_on_white(theme.ROLES[role]) >= 4.5


def test_series_colours_stand_out_on_white() -> None:
    styles = theme.series_styles([f"drafter {k}" for k in range(12)])
    assert all(contrast_on_white(style.colour) >= 4.5 for style in styles.values())


def test_every_origin_has_a_marker_of_its_own() -> None:
    assert set(theme.ORIGINS) == {origin.value for origin in Origin}
    assert len({(mark.marker, mark.fill) for mark in theme.ORIGINS.values()}) == len(theme.ORIGINS)


def test_a_name_keeps_its_style_whoever_stands_beside_it() -> None:
    own = {name: theme.series_styles([name])[name] for name in ("n500", "n2000", "n8000", "n24000", "n24000L")}
    apart = [name for name in own if list(own.values()).count(own[name]) == 1]
    assert len(apart) > 1
    assert theme.series_styles(apart) == {name: own[name] for name in apart}
    assert theme.series_styles(reversed(apart)) == {name: own[name] for name in apart}


def test_names_that_would_share_a_style_are_still_told_apart() -> None:
    alone = [theme.series_styles([name])[name] for name in ("custom-v1", "custom-v3")]
    assert alone[0] == alone[1]
    together = theme.series_styles(["custom-v3", "custom-v1"])
    assert together["custom-v1"] == alone[0]
    assert together["custom-v3"] != alone[0]


def test_levels_differ_in_colour_first() -> None:
    styles = level_styles(["concurrency 1", "concurrency 8", "concurrency 32", "concurrency 1", "concurrency 64"])
    assert list(styles) == ["concurrency 1", "concurrency 8", "concurrency 32", "concurrency 64"]
    assert len({style.colour for style in list(styles.values())[:3]}) == 3
    assert styles["concurrency 64"].linestyle != styles["concurrency 1"].linestyle


def test_twelve_names_have_twelve_styles_in_any_order() -> None:
    names = [f"drafter {k}" for k in range(12)]
    styles = theme.series_styles(names)
    assert len(set(styles.values())) == 12
    assert theme.series_styles(reversed(names)) == styles
    assert len(theme.series_styles([*names, "one more"])) == 13


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("$x$", r"\$x\$"),
        ("two\n lines\tand tabs", "two lines and tabs"),
        ("a" * 60, "a" * 28 + "…" + "a" * 15),
        ("nul\x00 模", "nul\ufffd \ufffd"),
        (None, "None"),
    ],
)
def test_labels_from_outside(text: object, shown: str) -> None:
    assert theme.safe_label(text) == shown


def test_a_cut_label_has_the_width_asked_for() -> None:
    assert len(theme.safe_label("x" * 300, 20)) == 20


@pytest.mark.parametrize("text", [r"$\frac{1}{$", r"\$a$", "$$", "a$b", "$"])
def test_labels_are_drawn_as_they_are(text: str) -> None:
    figure, ax = theme.new_figure()
    artist = ax.text(0.5, 0.5, theme.safe_label(text))
    figure.draw_without_rendering()
    assert artist._preprocess_math(artist.get_text())[0] == text


def test_the_theme_leaves_the_callers_settings_alone() -> None:
    before = dict(mpl.rcParams)

    @theme.themed
    def font_size() -> float:
        return float(mpl.rcParams["font.size"])

    assert font_size() == 11
    assert dict(mpl.rcParams) == before


def test_figures_stand_outside_pyplot() -> None:
    import matplotlib.pyplot as plt

    figure, ax = theme.new_figure()
    assert plt.get_fignums() == []
    assert ax.figure is figure
    _, axes = theme.new_figure(3, sharex=True)
    assert len(axes) == 3


def test_the_smallest_text_is_legible() -> None:
    figure, ax = theme.new_figure()
    assert isinstance(figure, Figure)
    assert figure.get_figwidth() <= 7
    ax.plot([1, 2], [1, 2])
    figure.draw_without_rendering()
    assert min(label.get_fontsize() for label in ax.get_xticklabels()) >= 10
