import pytest

from hardsight import datasets, models
from hardsight.degradation import DEGRADATIONS
from hardsight.domains import SELECTORS
from hardsight.hardness import SCORES
from hardsight.losses.registry import LOSSES
from hardsight.names import check_name, nearest_names, unknown_name
from hardsight.training.config import TrainingConfig

REGISTRIES = {
    "configuration": list(TrainingConfig.model_fields),
    "datasets": datasets.names(),
    "degradations": DEGRADATIONS,
    "losses": LOSSES,
    "networks": models.names(),
    "scores": SCORES,
    "selectors": SELECTORS,
}


def _slips(name: str) -> list[str]:
    """A letter left out, doubled, replaced, or changed with its neighbour, at every place."""
    at = range(len(name))
    return [
        *(name[:i] + name[i + 1 :] for i in at),
        *(name[:i] + 2 * name[i] + name[i + 1 :] for i in at),
        *(name[:i] + "q" + name[i + 1 :] for i in at),
        *(name[:i] + name[i : i + 2][::-1] + name[i + 2 :] for i in at),
    ]


@pytest.mark.parametrize("known", REGISTRIES.values(), ids=REGISTRIES)
def test_a_slip_of_the_pen_is_answered_with_the_name_that_was_meant(known):
    known = list(known)
    slips = {slip for name in known if len(name) >= 3 for slip in _slips(name)} - set(known)
    assert len(slips) > 20
    answers = {slip: nearest_names(slip, known) for slip in slips}
    assert all(answers.values())
    # Where many names differ by one letter (`avh-figure1`, `avh-figure2`, ...) three of them are all that is said.
    right = sum(any(slip in _slips(name) for name in near) for slip, near in answers.items())
    assert right >= 0.98 * len(slips)


@pytest.mark.parametrize("known", REGISTRIES.values(), ids=REGISTRIES)
@pytest.mark.parametrize("far", ["xyzzy", "foo", "hello world", "", "7", "x" * 100_000])
def test_what_is_far_off_gets_no_suggestion(known, far):
    assert nearest_names(far, list(known)) == []
    assert "did you mean" not in str(unknown_name("name", far, known))


@pytest.mark.parametrize(("given", "far"), [("imagenet", "lenet"), ("vit", "lenet"), ("efficientnet", "alexnet")])
def test_names_that_share_an_ending_are_not_near(given, far):
    assert far not in nearest_names(given, [far])


@pytest.mark.parametrize(
    ("given", "meant"),
    [("CrossEntropy", "cross_entropy"), ("cross-entropy", "cross_entropy"), ("symm", "symmetric"), ("MAE ", "mae")],
)
def test_case_and_hyphens_count_for_nothing_and_a_beginning_is_near(given, meant):
    assert nearest_names(given, ["cross_entropy", "symmetric", "mae"])[0] == meant


def test_the_likeliest_comes_first_and_alone_where_it_is_much_nearer():
    assert nearest_names("colour", ["cloud", "colours", "collar"]) == ["colours"]
    assert nearest_names("resnet", ["resnet20", "lenet", "resnet32"]) == ["resnet20", "resnet32"]


def test_few_names_are_listed_with_and_without_a_hint():
    def said(*given: object) -> str:
        return str(unknown_name(*given))

    near, far = said("fruit", "aple", ["apple", "pear"]), said("fruit", "xyzzy", ["apple", "pear"])
    assert near.startswith("fruit ")
    assert [near.count(one) for one in ("apple, pear", "got 'aple'", "mean 'apple'?")] == [1, 1, 1]
    assert [far.count(one) for one in ("apple, pear", "got 'xyzzy'", "mean")] == [1, 1, 0]
    assert said("grade", 5, [1, 2]).endswith("1, 2; got 5")
    assert [said("fruit", "a", [], "fruits").count(one) for one in ("none", "got 'a'", "mean")] == [1, 1, 0]


def test_many_names_are_listed_only_where_none_is_near_and_hundreds_never():
    some, hundreds = [f"colour-{n:02}" for n in range(30)], [f"colour-{n:03}" for n in range(300)]
    assert ", ".join(some) in str(unknown_name("colour", "xyzzy", some))
    near = str(unknown_name("colour", "olour-07", some, "colours"))
    assert [near.count(one) for one in ("30 colours", "got 'olour-07'", "mean 'colour-07'?", "colour-08")] == [
        1,
        1,
        1,
        0,
    ]
    # Several near ones leave the question open: the list answers it.
    assert ", ".join(some) in str(unknown_name("colour", "colour-", some))
    far = str(unknown_name("colour", "xyzzy", hundreds, "colours"))
    assert [far.count(one) for one in ("300 colours", "colour-002; got 'xyzzy'", "colour-003")] == [1, 1, 0]
    listed = str(unknown_name("colour", "xyzzy", hundreds, "colours", "listed by `paint`"))
    assert [listed.count(one) for one in ("listed by `paint`", "colour-0")] == [1, 0]


def test_a_known_name_passes_and_another_is_rejected():
    check_name("fruit", "pear", {"apple": 1, "pear": 2})
    with pytest.raises(ValueError, match=r"^fruit must be one of apple, pear; got \['pear'\]"):
        check_name("fruit", ["pear"], {"apple": 1, "pear": 2})
