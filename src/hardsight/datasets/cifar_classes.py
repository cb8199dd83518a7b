"""The class names of CIFAR-10 and CIFAR-100 and how CIFAR-100's 100 fine classes form 20 coarse ones.

Source: https://www.cs.toronto.edu/~kriz/cifar.html; labels count the names in alphabetical order.
"""

from hardsight.datasets.hierarchy import Hierarchy

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR10_HIERARCHY = Hierarchy.from_groups(
    CIFAR10_CLASSES,
    {
        "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
        "vehicle": ("airplane", "automobile", "ship", "truck"),
    },
)

_CIFAR100_GROUPS = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}

CIFAR100_CLASSES = tuple(sorted(fine for members in _CIFAR100_GROUPS.values() for fine in members))
CIFAR100_HIERARCHY = Hierarchy.from_groups(CIFAR100_CLASSES, _CIFAR100_GROUPS)

# GR, Appendix C: the fine classes of vehicles 1, then of vehicles 2, in the order printed there.
VEHICLES10_CLASSES = _CIFAR100_GROUPS["vehicles_1"] + _CIFAR100_GROUPS["vehicles_2"]
