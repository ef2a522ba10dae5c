// Blue (certain) over teal and yellow to red (uncertain): lightness and hue both change. Grey: unknown.
import { Color } from 'three';

const RAMP = ['#3566c9', '#2fae9a', '#f2c53d', '#d7352b'].map(text => new Color(text));
const UNKNOWN = new Color('#9a9ea8'), OBSERVED = new Color('#2f9e6b');

export function uncertaintyColour(mm, scale, target) {
  if (!Number.isFinite(mm) || !scale) return target.copy(UNKNOWN);
  const place = (RAMP.length - 1) * Math.min(1, Math.max(0, mm / scale));
  const stop = Math.min(RAMP.length - 2, Math.floor(place));
  return target.lerpColors(RAMP[stop], RAMP[stop + 1], place - stop);
}

export function jointColour(person, joint, frame, mode, meta, target) {
  if (mode === 'person') return target.set(person.colour);
  if (mode === 'observed') return target.copy(person.row('joint_observed', frame)[joint] ? OBSERVED : UNKNOWN);
  return uncertaintyColour(person.row(`${mode}_mm`, frame)[joint], meta.scale_mm[mode], target);
}
