"""All scenes by name. Each seed of a scene is a world of its own."""

from tests.simulation.damage import Damaged
from tests.simulation.disks import Disks
from tests.simulation.recreating import Recreated
from tests.simulation.references import References
from tests.simulation.scenes import Branches, Cleaning, Clocks, Merges, Others, Rollbacks, Scene

SCENES = {
    "main": Scene,
    "clocks": Clocks,
    "cleaning": Cleaning,
    "rollbacks": Rollbacks,
    "others": Others,
    "branches": Branches,
    "merges": Merges,
    "references": References,
    "recreated": Recreated,
    "disks": Disks,
    "damaged": Damaged,
}
