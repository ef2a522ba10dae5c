// What stands around the people: the floor, the video's cameras, footprints.
import * as THREE from 'three';

const GREY = 0x8a8d95, LENS = 0x5b4bb7, FRUSTUM_M = 0.4;
const SOLE_M = 0.03, LIFT_M = 0.004; // of a heel keypoint over what it stands on; of a footprint over the floor
const NOW = 0.95, BEFORE = 0.38; // opacity of footprints

// A grid with a line a metre under everything in the box, the strong one through the origin of the world.
export function floor(box) {
  const low = box.min.clone().floor().addScalar(-2), high = box.max.clone().ceil().addScalar(2);
  const step = Math.max(high.x - low.x, high.z - low.z) > 80 ? 10 : 1;
  const points = [];
  for (let x = Math.floor(low.x / step) * step; x <= high.x; x += step) points.push([x, low.z], [x, high.z]);
  for (let z = Math.floor(low.z / step) * step; z <= high.z; z += step) points.push([low.x, z], [high.x, z]);
  const grid = lines(points.map(([x, z]) => new THREE.Vector3(x, 0, z)), GREY);
  grid.material.transparent = true;
  grid.material.opacity = 0.34;
  grid.name = 'grid';
  return grid;
}

// A small pyramid at a camera of the video, which it moves with.
export function frustum(camera) {
  const corner = (x, y) => new THREE.Vector3(x, y, -1), eye = new THREE.Vector3();
  const corners = [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)];
  const roof = [corner(-0.35, 1.12), corner(0.35, 1.12), corner(0, 1.5)]; // which way is up
  const pyramid = lines([
    ...corners.flatMap((point, i) => [eye, point, point, corners[(i + 1) % 4]]),
    ...roof.flatMap((point, i) => [point, roof[(i + 1) % 3]]),
  ], LENS);
  camera.add(pyramid);
  return pyramid;
}

export function shapeFrustum(pyramid, fovDegrees, aspect) {
  const up = FRUSTUM_M * Math.tan(THREE.MathUtils.degToRad(fovDegrees / 2));
  pyramid.scale.set(up * aspect, up, FRUSTUM_M);
}

function lines(points, color) {
  return new THREE.LineSegments(
    new THREE.BufferGeometry().setFromPoints(points), new THREE.LineBasicMaterial({ color }));
}

// One mesh for every footprint of all people; `show` chooses the visible ones.
export class Footprints {
  constructor(meta) {
    this.group = new THREE.Group();
    this.prints = meta.people.flatMap(person => person.footprints.map(print => {
      const material = new THREE.MeshBasicMaterial({ color: person.colour, side: THREE.DoubleSide, transparent: true, depthWrite: false });
      const mesh = new THREE.Mesh(Footprints.sole, material);
      const heel = new THREE.Vector3().fromArray(print.heel_m), toes = new THREE.Vector3().fromArray(print.toes_m);
      const along = toes.clone().sub(heel), length = Math.max(0.05, Math.hypot(along.x, along.z));
      const under = Math.min(heel.y, toes.y) - SOLE_M;
      mesh.position.copy(heel).setY(Math.abs(under) < 0.08 ? LIFT_M : Math.max(LIFT_M, under)); // on stairs and chairs too
      mesh.rotation.y = Math.atan2(along.x, along.z);
      mesh.scale.set(print.left ? -length : length, 1, length);
      this.group.add(mesh);
      return { mesh, person, first: print.first, last: print.last };
    }));
  }

  // Shows the footprints that were made so far in this shot, of people for whom isShown(person) holds; feet that stand now
  // are opaque.
  show(frame, shot, isShown) {
    for (const { mesh, person, first, last } of this.prints) {
      mesh.visible = isShown(person) && person.shot === shot && first <= frame;
      mesh.material.opacity = frame <= last ? NOW : BEFORE;
    }
  }
}

// A right shoe from above: z from the heel (0) to the toes (1), x to its outer side.
Footprints.sole = (() => {
  const shape = new THREE.Shape();
  shape.moveTo(0, -0.22);
  shape.bezierCurveTo(-0.2, -0.22, -0.22, 0.05, -0.17, 0.3);
  shape.bezierCurveTo(-0.13, 0.55, -0.26, 0.7, -0.24, 0.95);
  shape.bezierCurveTo(-0.22, 1.3, 0.04, 1.38, 0.16, 1.15);
  shape.bezierCurveTo(0.3, 0.9, 0.24, 0.6, 0.19, 0.3);
  shape.bezierCurveTo(0.17, 0.05, 0.2, -0.22, 0, -0.22);
  return new THREE.ShapeGeometry(shape, 8).rotateX(Math.PI / 2);
})();
