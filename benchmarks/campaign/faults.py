"""All planted faults by name."""

from __future__ import annotations

from campaign.bound_faults import BOUNDS
from campaign.chaos_faults import CHAOS
from campaign.checkpoint_faults import CHECKPOINTS
from campaign.classifier_faults import CLASSIFIER
from campaign.client_faults import CLIENT
from campaign.cluster_faults import CLUSTER
from campaign.data_faults import DATA
from campaign.deciding_faults import DECIDING
from campaign.drawing_faults import DRAWING
from campaign.driver_faults import DRIVERS
from campaign.fleet_faults import FLEET
from campaign.flow_faults import PATHS
from campaign.form_faults import FORMS
from campaign.hostile_faults import INPUT
from campaign.hosts_faults import HOSTS
from campaign.judging_faults import JUDGING
from campaign.key_faults import KEYS
from campaign.learner_faults import LEARNER
from campaign.lerobot_faults import LEROBOT
from campaign.link_faults import LINKS
from campaign.offline_faults import FROM_DATA
from campaign.people_faults import PEOPLE
from campaign.pixel_faults import PIXELS
from campaign.pool_faults import POOL
from campaign.promise_faults import PROMISES
from campaign.robot_faults import ROBOTS
from campaign.role_faults import ROLES
from campaign.rule_faults import RULES
from campaign.shard_faults import SHARDS
from campaign.steering_faults import STEERING
from campaign.trial_faults import TRIALS
from campaign.wire_faults import WIRE

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        *POOL,
        *BOUNDS,
        *CHAOS,
        *CHECKPOINTS,
        *CLASSIFIER,
        *CLIENT,
        *CLUSTER,
        *DATA,
        *DECIDING,
        *DRAWING,
        *DRIVERS,
        *FLEET,
        *FORMS,
        *FROM_DATA,
        *HOSTS,
        *INPUT,
        *JUDGING,
        *KEYS,
        *LEARNER,
        *LEROBOT,
        *LINKS,
        *PATHS,
        *PEOPLE,
        *PIXELS,
        *PROMISES,
        *ROBOTS,
        *ROLES,
        *RULES,
        *SHARDS,
        *STEERING,
        *TRIALS,
        *WIRE,
    )
}
