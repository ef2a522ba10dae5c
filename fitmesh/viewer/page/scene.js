// The 3D scene: meshes from scene.glb, joints and colours from values.bin.
import * as THREE from 'three';
import { GLTFLoader } from '/three/GLTFLoader.js';
import { OrbitControls } from '/three/OrbitControls.js';
import { boneColour, jointColour } from '/colours.js';
import { Footprints, floor, frustum, shapeFrustum } from '/surroundings.js';

const JOINT_RADIUS_M = 0.024, JOINT_PX = [2.5, 6], PICK_PX = 26; // a joint's radius on the screen: least, most
const PALE_OPACITY = 0.4; // of a bone that was not observed

export class Scene {
  constructor(canvas, meta) {
    this.meta = meta;
    this.canvas = canvas;
    this.mode = 'person';
    this.frame = 0;
    this.selected = null; // { person, joint }
    this.only = null; // identity of the person who is shown alone; null: everyone
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true, alpha: true });
    this.renderer.setPixelRatio(Math.min(2, devicePixelRatio));
    this.scene = new THREE.Scene();
    this.camera = new THREE.PerspectiveCamera(40, 1, 0.05, 500);
    this.controls = new OrbitControls(this.camera, canvas);
    this.controls.addEventListener('change', () => { this.needsRender = true; });
    this.controls.addEventListener('start', () => this.letGo());
    this.colour = new THREE.Color();
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0x8a8578, 2.2));
    const sun = new THREE.DirectionalLight(0xffffff, 1.6);
    sun.position.set(-3, 6, 4);
    this.scene.add(sun);
  }

  async load(address) {
    const gltf = await new GLTFLoader().loadAsync(address);
    this.videoCameras = gltf.cameras; // one a shot, and the other cameras of the scene
    this.scene.add(gltf.scene);
    const grid = gltf.scene.getObjectByName('floor');
    if (grid) grid.visible = false; // the page draws its own
    gltf.scene.updateMatrixWorld(true);
    if (gltf.animations.length) {
      const clip = gltf.animations[0];
      clip.duration += 1; // the last frame must not wrap to the first
      this.mixer = new THREE.AnimationMixer(gltf.scene);
      this.action = this.mixer.clipAction(clip);
      this.action.play();
    }
    this.figures = this.meta.people.map(person => this.figure(person, gltf.scene));
    this.frustums = this.videoCameras.map(frustum);
    this.footprints = new Footprints(this.meta);
    this.scene.add(this.footprints.group);
    this.addFloor();
    this.viewFromCamera();
  }

  isShown(person) {
    return this.only === null || this.only === person.identity;
  }

  // The number of the shot that a frame belongs to.
  get shot() {
    return this.meta.shots.findLastIndex(shot => shot.first <= this.frame);
  }

  get videoCamera() {
    return this.videoCameras[this.shot];
  }

  // Vertical angle of view of the video's camera in this frame, in degrees: it may zoom.
  get videoFov() {
    return THREE.MathUtils.radToDeg(2 * Math.atan(this.meta.height_px / 2 / this.meta.focal_y_px[this.frame]));
  }

  figure(person, root) {
    const mesh = root.getObjectByName(`${person.name}_mesh`);
    mesh.frustumCulled = false; // its bounds are those of the rest pose
    const { geometry } = mesh;
    geometry.setAttribute('color', new THREE.BufferAttribute(new Float32Array(4 * geometry.attributes.position.count), 4));
    mesh.material = new THREE.MeshStandardMaterial({ vertexColors: true, roughness: 0.8, transparent: true, opacity: 0.88 });
    const joints = this.meta.joints.map(() => {
      const ball = new THREE.Mesh(Scene.ball, new THREE.MeshBasicMaterial({ depthTest: false, transparent: true }));
      ball.renderOrder = 2;
      const rim = new THREE.Mesh(Scene.ball, new THREE.MeshBasicMaterial({ color: 0x1b1d22, depthTest: false, transparent: true }));
      rim.renderOrder = 1;
      rim.scale.setScalar(1.35);
      ball.add(rim);
      this.scene.add(ball);
      return ball;
    });
    return { person, mesh, joints };
  }

  addFloor() {
    const points = this.meta.people.flatMap(person => [...person.arrays.joints_m.numbers]);
    const box = new THREE.Box3();
    for (let i = 0; i + 2 < points.length; i += 3) box.expandByPoint(new THREE.Vector3(points[i], points[i + 1], points[i + 2]));
    if (box.isEmpty()) box.set(new THREE.Vector3(-1, 0, -5), new THREE.Vector3(1, 2, -3));
    this.middle = box.getCenter(new THREE.Vector3());
    this.extent = box.getSize(new THREE.Vector3()).length();
    for (const camera of this.videoCameras) box.expandByPoint(camera.getWorldPosition(new THREE.Vector3()));
    this.whole = box;
    this.scene.add(floor(box));
  }

  // Follows the video's camera until the mouse takes over.
  viewFromCamera() {
    this.fromCamera = this.following = true;
    this.close = null;
    this.resize();
  }

  // The mouse turns the view from where it is now.
  letGo() {
    if (!this.following) return;
    this.following = false;
    const ahead = new THREE.Vector3(0, 0, -1).applyQuaternion(this.camera.quaternion);
    const distance = Math.max(0.5, this.middle.clone().sub(this.camera.position).dot(ahead));
    this.controls.target.copy(this.camera.position).addScaledVector(ahead, distance);
    this.controls.update();
  }

  // The whole scene from behind the camera: people, floor, camera.
  viewWorld() {
    this.look(this.whole.getCenter(new THREE.Vector3()), new THREE.Vector3(0.75, 0.5, 0.65),
      Math.max(3, 1.15 * this.whole.getSize(new THREE.Vector3()).length()));
  }

  viewFrom(x, y, z) {
    this.look(this.middle, new THREE.Vector3(x, y, z), Math.max(2.5, 1.1 * this.extent));
  }

  // Looks at a hand of the selected person, or of the first person in the frame, and follows it; the next call takes the
  // other hand.
  viewHands() {
    const people = [this.selected?.person, ...this.meta.people];
    const person = people.find(candidate => candidate && this.isShown(candidate) && candidate.row('joints_m', this.frame));
    if (!person) return;
    this.hand = this.hand === 22 ? 23 : 22;
    const points = person.row('joints_m', this.frame), from = new THREE.Vector3();
    const target = new THREE.Vector3().fromArray(points, 3 * this.hand);
    if (this.videoCamera) from.copy(this.videoCamera.getWorldPosition(new THREE.Vector3())).sub(target);
    this.look(target, from.lengthSq() ? from : new THREE.Vector3(0, 0, 1), 0.55);
    this.close = person;
  }

  followHand() {
    const points = this.close.row('joints_m', this.frame);
    if (!points) return;
    const target = new THREE.Vector3().fromArray(points, 3 * this.hand);
    this.camera.position.add(target).sub(this.controls.target);
    this.controls.target.copy(target);
    this.controls.update();
  }

  look(target, from, distance) {
    this.fromCamera = this.following = false;
    this.close = null;
    this.controls.target.copy(target);
    this.camera.position.copy(target).addScaledVector(from.normalize(), distance);
    this.resize();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    if (!width || !height) return;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.setLens();
    if (!this.following) this.controls.update();
    this.needsRender = true;
  }

  // From the camera, the whole image of the video fits into a window of any shape.
  setLens() {
    const half = Math.tan(THREE.MathUtils.degToRad(this.videoFov / 2));
    const fit = half * Math.max(1, this.videoCamera.aspect / this.camera.aspect);
    this.camera.fov = this.fromCamera ? THREE.MathUtils.radToDeg(2 * Math.atan(fit)) : 40;
    this.camera.updateProjectionMatrix();
    if (this.following) this.follow();
  }

  follow() {
    this.videoCamera.matrixWorld.decompose(this.camera.position, this.camera.quaternion, new THREE.Vector3());
  }

  show(frame) {
    this.frame = frame;
    if (this.action) {
      this.action.time = Math.fround(this.meta.time_s[frame]); // as scene.glb has it: an earlier time is the frame before
      this.mixer.update(0);
    }
    this.scene.updateMatrixWorld();
    const { shot } = this;
    this.frustums.forEach((pyramid, number) => {
      const other = number >= this.meta.shots.length; // of several cameras
      pyramid.visible = other || (number === shot && !this.following);
      if (number === shot) shapeFrustum(pyramid, this.videoFov, this.videoCamera.aspect);
      else if (other) shapeFrustum(pyramid, this.videoCameras[number].fov, this.videoCameras[number].aspect);
    });
    this.footprints.show(frame, shot, person => this.footprintsShown !== false && this.isShown(person));
    if (this.close) this.followHand();
    if (this.fromCamera) this.setLens(); // it may zoom, and every shot has its own
    for (const figure of this.figures) this.place(figure);
    this.needsRender = true;
  }

  place({ person, mesh, joints }) {
    const points = this.isShown(person) ? person.row('joints_m', this.frame) : null;
    mesh.visible = points !== null && this.meshesShown !== false;
    joints.forEach((ball, joint) => {
      ball.visible = points !== null && this.jointsShown !== false;
      if (!ball.visible) return;
      ball.position.fromArray(points, 3 * joint);
      const selected = this.selected && this.selected.person === person && this.selected.joint === joint;
      ball.userData.size = selected ? 1.6 : 1;
      if (this.mode === 'person') ball.material.color.set(selected ? 0xf2c53d : 0xffffff);
      else jointColour(person, joint, this.frame, this.mode, this.meta, ball.material.color);
      ball.material.opacity = person.row('joint_observed', this.frame)[joint] ? 0.95 : 0.35;
      ball.children[0].material.opacity = ball.material.opacity;
    });
    if (mesh.visible) this.paint(person, mesh);
  }

  // Mixes the colours of the bones that move a vertex by skinning weight; bones that were not observed are transparent.
  paint(person, mesh) {
    const { color, skinIndex, skinWeight } = mesh.geometry.attributes;
    const observed = person.row('bone_observed', this.frame);
    const palette = this.meta.joint_of_bone.map(bone =>
      [...boneColour(person, bone, this.frame, this.mode, this.meta, this.colour).toArray(), observed[bone] ? 1 : PALE_OPACITY]);
    for (let vertex = 0; vertex < color.count; vertex++) {
      let red = 0, green = 0, blue = 0, opaque = 0;
      for (let k = 0; k < 4; k++) {
        const weight = skinWeight.array[4 * vertex + k], tint = palette[skinIndex.array[4 * vertex + k]];
        red += weight * tint[0]; green += weight * tint[1]; blue += weight * tint[2]; opaque += weight * tint[3];
      }
      color.setXYZW(vertex, red, green, blue, opaque);
    }
    color.needsUpdate = true;
  }

  // Where a joint is on the canvas, in pixels of the page.
  canvasPosition(person, joint) {
    const points = person.row('joints_m', this.frame);
    if (!points) return null;
    const place = new THREE.Vector3().fromArray(points, 3 * joint).project(this.camera);
    if (Math.abs(place.z) > 1) return null;
    return { x: (place.x + 1) / 2 * this.canvas.clientWidth, y: (1 - place.y) / 2 * this.canvas.clientHeight, z: place.z };
  }

  // The joint nearest to a point of the canvas within PICK_PX; of several as near, the one in front.
  pick(x, y) {
    let best = null, least = PICK_PX;
    for (const { person } of this.figures) {
      if (!this.isShown(person)) continue;
      this.meta.joints.forEach((_, joint) => {
        const place = this.canvasPosition(person, joint);
        const away = place ? Math.hypot(place.x - x, place.y - y) : Infinity;
        if (away < least - 0.5 || (best && Math.abs(away - least) <= 0.5 && place.z < best.z)) {
          best = { person, joint, z: place.z };
          least = away;
        }
      });
    }
    return best;
  }

  // Far joints stay large enough to be clicked, near ones small enough not to hide the body.
  sizeJoints() {
    const zoom = this.canvas.clientHeight / (2 * Math.tan(THREE.MathUtils.degToRad(this.camera.fov / 2)));
    for (const { joints } of this.figures) {
      for (const ball of joints) {
        const px = zoom * JOINT_RADIUS_M / Math.max(0.01, ball.position.distanceTo(this.camera.position));
        ball.scale.setScalar(ball.userData.size * Math.min(JOINT_PX[1], Math.max(JOINT_PX[0], px)) / px);
      }
    }
  }

  render() {
    if (!this.following) this.controls.update();
    if (!this.needsRender) return;
    this.needsRender = false;
    this.sizeJoints();
    this.renderer.render(this.scene, this.camera);
  }
}

Scene.ball = new THREE.SphereGeometry(JOINT_RADIUS_M, 16, 12);
