"""The ready-made confusions: groups of the right size, every mapping within its classes."""

from collections import Counter

from hardsight import noise


def test_cifar100_has_twenty_groups_of_five():
    assert len(noise.CIFAR100_COARSE) == 100
    assert Counter(noise.CIFAR100_COARSE) == dict.fromkeys(range(20), 5)


def test_next_in_group_is_a_cycle_through_each_group():
    mapping = noise.next_in_group(noise.CIFAR100_COARSE)
    assert sorted(mapping) == sorted(mapping.values()) == list(range(100))
    for label in range(100):
        seen = [label]
        while (step := mapping[seen[-1]]) != label:
            seen.append(step)
        assert len(seen) == 5
        assert len({noise.CIFAR100_COARSE[member] for member in seen}) == 1


def test_lookalikes_lead_to_another_class():
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    pairs = {(names[a], names[b]) for a, b in noise.CIFAR10_LOOKALIKES.items()}
    assert pairs == {
        ("truck", "automobile"),
        ("bird", "airplane"),
        ("deer", "horse"),
        ("cat", "dog"),
        ("dog", "cat"),
    }
    assert all(a != b and 0 <= a < 10 and 0 <= b < 10 for a, b in noise.MNIST_LOOKALIKES.items())
