"""A crash box: mass at a required stiffness (fast) against peak deceleration (slow).

Half a small car (600 kg) runs at 10 m/s into a rigid wall behind a square steel tube of
0.6 m. The tube is a row of segments, from the wall to the car ever longer and wider; the
design chooses the wall thickness and the yield strength of every segment.

The slow objective integrates a chain of point masses in time. Every segment is an elastic
wall in series with an irreversible crush, and a dashpot in parallel. The crush force has the
mean crush force of a square tube as its mean, rises with the stroke as in a tapered or
triggered tube, so that segments share the crush, and locks up as the folds touch. Strain
rate and the ripple of single folds are left out. The fast objective is in closed form.
Light tubes bottom out; tubes too strong stop the car too hard.

Sources:
    T. Wierzbicki, W. Abramowicz: On the crushing mechanics of thin-walled structures.
        Journal of Applied Mechanics 50 (1983), 727-734. Mean force 38.12 M0 (b / t)^(1/3),
        M0 = sigma0 t^2 / 4, averaged over the whole length of a fold.
    W. Abramowicz, N. Jones: Dynamic axial crushing of square tubes. International Journal
        of Impact Engineering 2 (1984), 179-208; Dynamic progressive buckling of circular
        and square tubes, ibid. 4 (1986), 243-270. Only 0.73 of the length can be crushed,
        so the mean force over that stroke is 38.12 / 0.73 = 52.22 M0 (b / t)^(1/3).
"""

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.validation import as_float_tensor, check_int, check_real

YOUNG = 210e9  # Young's modulus of steel, Pa
DENSITY = 7850.0  # density of steel, kg/m^3
GRAVITY = 9.80665  # m/s^2
TUBE_LENGTH = 0.6  # for any number of segments, m
VEHICLE_MASS = 600.0  # behind one of the two crash boxes of a car, kg
IMPACT_SPEED = 10.0  # m/s
CRUSH_STROKE = 0.73  # share of a length over which the mean force is taken (Abramowicz, Jones)
SOLID_STROKE = 0.9  # share of a length after which the folds are solid: no force crushes more
HARDENING = 0.75  # initial rise of the crush force per segment length, in initial forces
IMPEDANCE_SHARE = 0.02  # dashpot over the wall's acoustic impedance: 2 % of critical damping
MILD_STRENGTH = 250.0  # yield strength of the grade without surcharge, MPa
STRENGTH_SURCHARGE = 0.15  # price, forming and joining as a share of the mass, per 100 MPa
REQUIRED_STIFFNESS = 2.6e6  # against a lateral force at the tip, clamped at the car, N/m
STRINGER_WIDTH = 0.05  # of the square stringer that makes up for missing stiffness, m

COURANT = 0.7  # time step over the time of sound through the shortest segment; stable below 1
SAMPLE_STEPS = 256  # default steps between looks at the energies and at who has finished

THICKNESS_BOUNDS = (1.0, 2.5)  # mm
STRENGTH_BOUNDS = (250.0, 600.0)  # MPa
REF_POINT = (5.0, 80.0)  # kg and g: close behind the ends of a useful front


@lru_cache
def geometry(n_segments: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return the lengths and the widths of the segments in m, read-only, the wall first.

    Lengths grow by half from the wall to the car and sum to `TUBE_LENGTH`; widths grow
    from 70 to 100 mm. So the order of the segments matters.
    """
    ratio = np.linspace(1.0, 1.5, n_segments)
    lengths, widths = TUBE_LENGTH * ratio / ratio.sum(), np.linspace(0.07, 0.1, n_segments)
    lengths.flags.writeable = widths.flags.writeable = False
    return lengths, widths


def mean_crush_force(thickness: Any, yield_strength: Any, width: Any) -> Any:
    """Return the quasi-static mean crush force of square tubes, in N.

    Args:
        thickness: Wall thickness, in mm; any shape, as the others.
        yield_strength: Yield strength, in MPa, taken as the flow stress.
        width: Width of the tube, in m.
    """
    plastic_moment = yield_strength * thickness**2 / 4  # N per unit length: MPa mm^2
    return 38.12 / CRUSH_STROKE * plastic_moment * (1e3 * width / thickness) ** (1 / 3)


def stiffened_mass(thickness: Any, yield_strength: Any) -> Float[np.ndarray, " n"]:
    """Return the cost-equivalent mass of tubes that meet the stiffness requirement, in kg.

    The mass of every segment bears the surcharge of its grade. A straight square stringer
    of mild steel, free to slide under axial load, adds the bending stiffness that the tube
    lacks; its mass is that stiffness over E b^2 / (2 rho l^4), and the corner at no
    lack at all is rounded over a tenth of the requirement.

    Args:
        thickness: Wall thicknesses `n x k`, in mm.
        yield_strength: Yield strengths `n x k`, in MPa.

    Raises:
        InvalidInputError: If an array is not `n x k`, or not positive and finite.
    """
    return _stiffened_mass(*_check_design(thickness, yield_strength))


def _stiffened_mass(
    thickness: Float[np.ndarray, "n k"], yield_strength: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, " n"]:
    lengths, widths = geometry(thickness.shape[1])
    weights = DENSITY * 4e-3 * widths * lengths
    surcharge = STRENGTH_SURCHARGE / 100.0 * (yield_strength - MILD_STRENGTH)
    tube = (thickness * (1.0 + surcharge)) @ weights
    # A unit force at the tip bends the tube by the integral of x^2 / (E I), I = 2/3 b^3 t.
    ends = lengths.cumsum() ** 3
    softness = np.diff(ends, prepend=0.0) / (2e-3 * YOUNG * widths**3)
    lack = REQUIRED_STIFFNESS - 1.0 / ((1.0 / thickness) @ softness)
    lack = 0.5 * (lack + np.hypot(lack, 0.1 * REQUIRED_STIFFNESS))
    return tube + lack * (2 * DENSITY * TUBE_LENGTH**4 / (YOUNG * STRINGER_WIDTH**2))


@dataclass(frozen=True, kw_only=True, eq=False)
class CrashResult:
    """What a simulated crash of n tubes of k segments gave. Energies are in J, at the end."""

    peak_deceleration: Float[np.ndarray, " n"]
    """Largest deceleration of the vehicle, in g."""
    initial_energy: Float[np.ndarray, " n"]
    """Kinetic energy of vehicle and tube before the impact."""
    kinetic: Float[np.ndarray, " n"]
    """Kinetic energy left."""
    elastic: Float[np.ndarray, " n"]
    """Energy stored in elastic strain."""
    plastic: Float[np.ndarray, " n"]
    """Energy dissipated by crushing."""
    damping: Float[np.ndarray, " n"]
    """Energy dissipated by the dashpots and by the loss of contact to the wall."""
    energy_error: Float[np.ndarray, " n"]
    """Largest violation of the energy balance at any sample, over the initial energy."""
    crush: Float[np.ndarray, "n k"]
    """Permanent crush of each segment as a share of its length, the wall first."""
    rebound_speed: Float[np.ndarray, " n"]
    """Speed of the vehicle away from the wall, in m/s; negative if it still drives on."""
    n_steps: Int[np.ndarray, " n"]
    """Time steps taken."""
    time_step: float
    """Time step, in s."""


@dataclass(kw_only=True, eq=False)
class _Chain:
    """State of n chains; the vehicle is the last node, the wall is before the first segment.

    A segment's shortening u is elastic plus crush w, and the force K (u - w) stays below the
    crush force P + H w / (1 - w / solid). Both are equal while it crushes: a quadratic in w.
    """

    stiffness: Float[np.ndarray, "k n"]  # K
    plateau: Float[np.ndarray, "k n"]  # P
    hardening: Float[np.ndarray, "k n"]  # H
    solid: Float[np.ndarray, "k n"]  # crush at which the folds are solid
    dashpot: Float[np.ndarray, "k n"]
    mass: Float[np.ndarray, "k n"]
    v: Float[np.ndarray, "k n"]  # speed towards the wall, half a step ahead of u
    v_before: Float[np.ndarray, "k n"]  # the same half a step behind u
    u: Float[np.ndarray, "k n"]
    w: Float[np.ndarray, "k n"]
    damped: Float[np.ndarray, "k n"]  # work of the dashpots over the time step
    force: Float[np.ndarray, "k n"]
    peak: Float[np.ndarray, " n"]  # largest force on the vehicle
    error: Float[np.ndarray, " n"]
    initial_energy: Float[np.ndarray, " n"]
    dt: float

    def select(self, keep: np.ndarray) -> "_Chain":
        """Return the chains where `keep` is true."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "dt"}
        return replace(self, **{name: a[..., keep] for name, a in arrays.items()})

    def advance(self, n_steps: int) -> None:
        """Take leapfrog steps: positions at full, speeds at half steps.

        All in place, as small arrays cost numpy more by allocation than by arithmetic.
        """
        u, v, w, force = self.u, self.v, self.w, self.force
        first_yield, inverse = self.plateau / self.stiffness, 1.0 / self.solid
        slope, gain = 1.0 + self.hardening / self.stiffness, self.dt / self.mass
        rate, a, b, elastic = (np.empty_like(u) for _ in range(4))
        for _ in range(n_steps):
            rate[0] = v[0]
            np.subtract(v[1:], v[:-1], out=rate[1:])
            u += np.multiply(rate, self.dt, out=a)
            # Crush if plastic: w = 2 e / (s + sqrt(s^2 - 4 e / solid)), s = slope + e / solid.
            np.maximum(np.subtract(u, first_yield, out=a), 0.0, out=a)
            np.multiply(a, inverse, out=b)
            np.add(b, slope, out=force)
            b *= 4.0
            np.subtract(np.multiply(force, force, out=elastic), b, out=b)
            force += np.sqrt(np.maximum(b, 0.0, out=b), out=b)
            a += a
            np.maximum(w, np.divide(a, force, out=a), out=w)
            np.multiply(np.subtract(u, w, out=elastic), self.stiffness, out=elastic)
            np.maximum(elastic[0], 0.0, out=elastic[0])  # the wall cannot pull
            np.add(elastic, np.multiply(rate, self.dashpot, out=a), out=force)
            np.maximum(force[0], 0.0, out=force[0])
            self.damped += np.multiply(np.subtract(force, elastic, out=a), rate, out=a)
            np.maximum(self.peak, force[-1], out=self.peak)
            np.subtract(force[:-1], force[1:], out=a[:-1])
            a[-1] = force[-1]
            v -= np.multiply(a, gain, out=a)
        self.v_before = v + a
        balance = sum(self.energies().values()) / self.initial_energy
        self.error = np.maximum(self.error, abs(balance - 1.0))

    def energies(self) -> dict[str, Float[np.ndarray, " n"]]:
        """Return kinetic and elastic energy, plastic and damping dissipation, in J."""
        # The product of the speeds around a full step is the energy that leapfrog conserves.
        kinetic = 0.5 * (self.mass * self.v * self.v_before).sum(0)
        strain = self.u - self.w
        strain[0] = np.maximum(strain[0], 0.0)
        share = np.minimum(self.w / self.solid, 1.0 - 1e-12)  # all solid: only where H = 0
        hardened = self.hardening * self.solid**2 * (-np.log1p(-share) - share)
        return {
            "kinetic": kinetic,
            "elastic": 0.5 * (self.stiffness * strain**2).sum(0),
            "plastic": (self.plateau * self.w + hardened).sum(0),
            "damping": self.dt * self.damped.sum(0),
        }

    def finished(self) -> np.ndarray:
        """Say which vehicles rebound, off the wall and with nothing left to reach a peak."""
        falling = self.force[-1] < 0.5 * self.peak
        return (self.v[-1] <= 0.0) & (self.force[0] <= 0.0) & falling

    def outcome(self, step: int) -> dict[str, np.ndarray]:
        """Return the arrays of a `CrashResult`."""
        return self.energies() | {
            "peak_deceleration": self.peak / self.mass[-1] / GRAVITY,
            "initial_energy": self.initial_energy,
            "energy_error": self.error,
            "crush": (SOLID_STROKE * self.w / self.solid).T,
            "rebound_speed": -self.v[-1],
            "n_steps": np.full(len(self.peak), step),
        }


def _start(
    thickness: Float[np.ndarray, "n k"],
    yield_strength: Float[np.ndarray, "n k"],
    vehicle_mass: float,
    impact_speed: float,
    hardening: float,
    courant: float,
) -> _Chain:
    """Return chains at the moment of the impact."""
    n, k = thickness.shape
    lengths, widths = (a[:, None] for a in geometry(k))
    area = 4e-3 * widths * thickness.T
    share = CRUSH_STROKE / SOLID_STROKE  # the mean force over the stroke is the literature's
    work = hardening * SOLID_STROKE**2 * (-math.log1p(-share) - share)
    plateau = mean_crush_force(thickness.T, yield_strength.T, widths)
    plateau /= 1.0 + work / CRUSH_STROKE
    segment = DENSITY * area * lengths
    mass = 0.5 * segment  # half of a segment goes to either end; the front end stands still
    mass[:-1] += 0.5 * segment[1:]
    mass[-1] += vehicle_mass
    v, zero = np.full((k, n), impact_speed), np.zeros((k, n))
    return _Chain(
        stiffness=YOUNG * area / lengths,
        plateau=plateau,
        hardening=hardening * plateau / lengths,
        solid=np.broadcast_to(SOLID_STROKE * lengths, (k, n)),
        dashpot=IMPEDANCE_SHARE * area * math.sqrt(YOUNG * DENSITY),
        mass=mass,
        v=v,
        v_before=v,
        u=zero.copy(),
        w=zero.copy(),
        damped=zero.copy(),
        force=zero,
        peak=np.zeros(n),
        error=np.zeros(n),
        initial_energy=0.5 * mass.sum(0) * impact_speed**2,
        # The highest frequency of the chain is at most 2 c / l whatever the thicknesses, as
        # stiffness and mass both grow with the area, and crushing only softens a segment.
        dt=courant * float(lengths.min()) / math.sqrt(YOUNG / DENSITY),
    )


def simulate_crash(
    thickness: Any,
    yield_strength: Any,
    *,
    vehicle_mass: float = VEHICLE_MASS,
    impact_speed: float = IMPACT_SPEED,
    hardening: float = HARDENING,
    time_step_scale: float = 1.0,
    end_time: float = 0.15,
) -> CrashResult:
    """Drive n tubes of k segments into a rigid wall until their vehicles rebound.

    A design's result does not depend on the others: each leaves the batch once it is done.

    Args:
        thickness: Wall thicknesses `n x k`, in mm, the segment at the wall first.
        yield_strength: Yield strengths `n x k`, in MPa.
        vehicle_mass: Mass behind the tube, in kg.
        impact_speed: Speed at the wall, in m/s.
        hardening: Rise of the crush force (see `HARDENING`); 0 is a constant plateau.
        time_step_scale: Time step relative to the default, in (0, 1].
        end_time: Time after which vehicles that have not rebound are left as they are, in s.

    Raises:
        InvalidInputError: If an argument is not as described.
    """
    thickness, yield_strength = _check_design(thickness, yield_strength)
    vehicle_mass = check_real("vehicle_mass", vehicle_mass, minimum=0.0, exclusive=True)
    impact_speed = check_real("impact_speed", impact_speed, minimum=0.0, exclusive=True)
    hardening = check_real("hardening", hardening, minimum=0.0)
    scale = check_real("time_step_scale", time_step_scale, minimum=0.0, maximum=1.0, exclusive=True)
    end_time = check_real("end_time", end_time, minimum=0.0, exclusive=True)

    chain = _start(
        thickness, yield_strength, vehicle_mass, impact_speed, hardening, COURANT * scale
    )
    interval, last = round(SAMPLE_STEPS / scale), math.ceil(end_time / chain.dt)
    active, step = np.arange(len(thickness)), 0
    rows: list[np.ndarray] = []
    outcomes: list[dict[str, np.ndarray]] = []
    while active.size:
        n_steps = min(interval, last - step)
        chain.advance(n_steps)
        step += n_steps
        done = chain.finished() | (step == last)
        if done.any():
            rows.append(active[done])
            outcomes.append(chain.select(done).outcome(step))
            chain, active = chain.select(~done), active[~done]
    order = np.concatenate(rows).argsort()
    whole = {name: np.concatenate([o[name] for o in outcomes])[order] for name in outcomes[0]}
    return CrashResult(**whole, time_step=chain.dt)


def _check_design(
    thickness: Any, yield_strength: Any
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "n k"]]:
    """Return both arrays as float64 `n x k`, or say which one is wrong."""
    t = as_float_tensor("thickness", thickness).numpy()
    s = as_float_tensor("yield_strength", yield_strength).numpy()
    for name, array in (("thickness", t), ("yield_strength", s)):
        if array.ndim != 2 or array.size == 0:
            raise InvalidInputError(f"{name} must have shape (n, k), got shape {array.shape}")
        bad = array[~((array > 0) & (array < np.inf))]
        if bad.size:
            raise InvalidInputError(f"{name} must be positive and finite, got {bad[0]}")
    if s.shape != t.shape:
        raise InvalidInputError(f"yield_strength must have shape {t.shape}, got shape {s.shape}")
    return t, s


def _fast(x: Float[np.ndarray, " d"]) -> float:
    return float(_stiffened_mass(*x.reshape(2, 1, -1))[0])


def _slow(x: Float[np.ndarray, " d"]) -> float:
    return float(simulate_crash(*x.reshape(2, 1, -1)).peak_deceleration[0])


class CrashBeam(TestProblem):
    """Mass in kg (fast) and peak deceleration in g (slow) of a crash box, both minimised.

    The variables are all wall thicknesses in mm, then all yield strengths in MPa, from the
    wall to the car: thickness_1, ..., yield_1, ... The Pareto front is not known.

    Example:
        >>> problem = CrashBeam(n_segments=5)
        >>> problem.d
        10
    """

    def __init__(self, *, tau: float = 5.0, n_segments: int = 6) -> None:
        """Set up the problem.

        Args:
            tau: Fast evaluations in the time of a slow one, by convention; in truth thousands.
            n_segments: Segments of the tube, 5 to 8; the number of dimensions is twice that.

        Raises:
            InvalidInputError: If an argument is not as described.
        """
        k = check_int("n_segments", n_segments)
        if not 5 <= k <= 8:
            raise InvalidInputError(f"n_segments must be from 5 to 8, got {k}")
        super().__init__(
            fast=_fast,
            slow=_slow,
            bounds=np.repeat([THICKNESS_BOUNDS, STRENGTH_BOUNDS], k, axis=0).T,
            tau=tau,
            names=[f"{what}_{i + 1}" for what in ("thickness", "yield") for i in range(k)],
            ref_point=REF_POINT,
            objective_names=("mass [kg]", "peak deceleration [g]"),
        )


register("crash-beam", CrashBeam)
