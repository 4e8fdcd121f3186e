"""GPU types: one name for each, however a driver, a provider or a person calls it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.compute.gpus import GPUS, Dtype, Gpu, display_name, find_gpu, find_gpus, is_gpu, join_types, names
from crucible.core.compute.resources import GiB
from crucible.core.errors import UnknownName


def test_a_type_is_found_by_its_name() -> None:
    found = find_gpu("T4")
    assert (found.name, found.memory_bytes, found.capability) == ("T4", 16 * GiB, (7, 5))


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB-SXM"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("RTX A6000", "RTX-A6000"),
        ("A6000", "RTX-A6000"),
        ("Quadro RTX 6000", "RTX-6000"),
        ("AMD Instinct MI300X", "MI300X"),
        ("l40s", "L40S"),
    ],
)
def test_drivers_and_people_call_them_otherwise(said: str, name: str) -> None:
    assert find_gpu(said).name == name


@pytest.mark.parametrize(
    ("said", "members"),
    [
        ("A100", {"A100-40GB-PCIe", "A100-40GB-SXM", "A100-80GB-PCIe", "A100-80GB-SXM"}),
        ("a100-80gb", {"A100-80GB-PCIe", "A100-80GB-SXM"}),
        ("V100", {"V100-16GB", "V100-32GB"}),
        ("H100", {"H100-PCIe", "H100-SXM", "H100-NVL"}),
        ("H200", {"H200"}),
        ("T4", {"T4"}),
    ],
)
def test_a_short_name_means_all_of_its_kind(said: str, members: set[str]) -> None:
    assert {one.name for one in find_gpus(said)} == members


def test_a_group_is_not_one_type() -> None:
    with pytest.raises(UnknownName):
        find_gpu("A100")
    assert is_gpu("A100")


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        find_gpus("A1000")
    assert caught.value.meant == "A100"
    assert "catalog gpus" in caught.value.fix
    assert not is_gpu("RTX 6000 Ada")  # another GPU than the Quadro of that number


def test_no_two_types_answer_to_one_name() -> None:
    said = [name for one in GPUS for name in (one.name, *one.aliases)]
    assert all(find_gpu(name) is next(one for one in GPUS if name in (one.name, *one.aliases)) for name in said)
    assert len({one.name for one in GPUS}) == len(GPUS)
    assert not {one.name for one in GPUS} & {group for one in GPUS for group in one.groups}


@pytest.mark.parametrize("one", GPUS, ids=lambda one: one.name)
def test_the_figures_of_each_hang_together(one: Gpu) -> None:
    assert 8 * GiB <= one.memory_bytes <= 192 * GiB
    assert one.source
    assert 100e9 < one.bandwidth < 10e12
    rates = [one.flops.get(dtype, 0) for dtype in (Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.FP8)]
    known = [rate for rate in rates if rate]
    assert known == sorted(known), "the narrower the format, the faster"
    assert one.flops[Dtype.FP32] > 0
    tensor_cores_since_volta = one.capability is not None and one.capability < (8, 0)
    assert (Dtype.BF16 in one.flops) is not tensor_cores_since_volta
    assert (Dtype.FP8 in one.flops) is (one.capability is None or one.capability >= (8, 9))


def test_speeds_are_dense_not_with_sparsity() -> None:
    assert find_gpu("A100-80GB-SXM").flops[Dtype.BF16] == 312 * 10**12
    assert find_gpu("H100-SXM").flops[Dtype.BF16] == pytest.approx(989.4e12)
    assert find_gpu("L4").flops[Dtype.FP16] == 121 * 10**12


def test_the_facts_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        find_gpu("T4").flops[Dtype.FP8] = 1  # type: ignore[index]


@given(st.sampled_from(names()), st.sampled_from([str.lower, str.upper, str.title]), st.sampled_from(["-", " ", "_"]))
def test_case_and_dashes_do_not_matter(name: str, change: object, dash: str) -> None:
    said = change(name.replace("-", dash))  # type: ignore[operator]
    assert find_gpus(said) == find_gpus(name)


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    if not is_gpu(text):
        with pytest.raises(UnknownName):
            find_gpus(text)


def test_types_are_said_by_the_name_of_their_group() -> None:
    every = [one.name for one in find_gpus("A100")]
    assert join_types(every) == "A100"
    assert join_types(["T4", *every]) == "A100 or T4"
    assert join_types(every[:1]) == every[0]


def test_a_type_has_one_name_whoever_speaks() -> None:
    assert display_name("Tesla T4") == display_name("NVIDIA T4") == "T4"
    assert display_name("Voodoo 2") == "Voodoo 2"
