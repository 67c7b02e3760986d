"""Why variance reduction can work: exact variances of an estimate and of a correction between two points, no sampling."""

import jax
import jax.numpy as jnp

import stormpg
from stormpg.theory import tabular
from stormpg.theory.problems import garnet

with jax.enable_x64(True):
    tables, gamma, horizon = garnet(states=6, actions=3, branching=2, seed=0), 0.99, 20
    here = stormpg.softmax_table(6, 3).init(jax.random.key(0))
    direction = tabular.gradient(tables, here, gamma, horizon)
    size = jnp.linalg.norm(direction["logits"])
    print(f"L = {tabular.objective(tables, here, gamma, horizon):.4f}, |∇L| = {size:.4f}")
    print(f"Var d(ξ) = {tabular.estimate_moments(tables, here, gamma, horizon).variance:.4f}")
    for distance in (1.0, 0.1, 0.01):
        there = jax.tree.map(lambda x, g, step=distance / size: x + step * g, here, direction)
        found = tabular.difference_moments(tables, here, there, gamma, horizon)
        print(f"at distance {distance:<5} Var [d(ξ') − d^ξ'(ξ)] = {found.variance:.6f}")
