// Blue (certain) over teal and yellow to red (uncertain): lightness and hue both change. Grey: unknown.
import { Color } from 'three';

const RAMP = ['#3566c9', '#2fae9a', '#f2c53d', '#d7352b'].map(text => new Color(text));
const UNKNOWN = new Color('#9a9ea8'), OBSERVED = new Color('#2f9e6b'), PALE = new Color('#d1d1d1');

export function uncertaintyColour(mm, scale, target) {
  if (!Number.isFinite(mm) || !scale) return target.copy(UNKNOWN);
  const place = (RAMP.length - 1) * Math.min(1, Math.max(0, mm / scale));
  const stop = Math.min(RAMP.length - 2, Math.floor(place));
  return target.lerpColors(RAMP[stop], RAMP[stop + 1], place - stop);
}

// The surface that a joint moves; in the colour of the person, a bone that was not observed is pale.
export function boneColour(person, bone, frame, mode, meta, target) {
  const observed = person.row('bone_observed', frame)[bone];
  if (mode === 'person') return observed ? target.set(person.colour) : target.copy(PALE);
  if (mode === 'observed') return target.copy(observed ? OBSERVED : UNKNOWN);
  return jointColour(person, bone, frame, mode, meta, target);
}

export function jointColour(person, joint, frame, mode, meta, target) {
  if (mode === 'person') return target.set(person.colour);
  if (mode === 'observed') return target.copy(person.row('joint_observed', frame)[joint] ? OBSERVED : UNKNOWN);
  return uncertaintyColour(person.row(`${mode}_mm`, frame)[joint], meta.scale_mm[mode], target);
}
