// What is selected and how it is shown. It is the address: a step is an entry of the browser's history.
const START = { filters: [], sort: null, axes: null, colour: "", tokens: null, view: null, open: null };

function read() {
  try {
    return { ...START, ...JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}") };
  } catch {
    return { ...START };
  }
}

export const state = read();
export const forget = () => Object.assign(state, structuredClone(START));
const listeners = [];
export const onChange = (listener) => listeners.push(listener);
const tell = (what) => listeners.forEach((listener) => listener(what));

const address = () => {
  const told = Object.fromEntries(
    Object.entries(state).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(START[name])),
  );
  return `${location.pathname}${location.search}#${encodeURIComponent(JSON.stringify(told))}`;
};

const step = () => history.state?.step ?? 0;
export const canUndo = () => step() > 0 || state.filters.length > 0;

// `changes` take effect; a step can be undone, what is no step changes the address alone.
export function change(changes, { isStep = true } = {}) {
  Object.assign(state, changes);
  if (isStep) history.pushState({ step: step() + 1 }, "", address());
  else history.replaceState({ step: step() }, "", address());
  tell(Object.keys(changes));
}

// A filter that is being dragged is shown, and becomes a step when it is let go.
export function drag(filters) {
  state.filters = filters;
  tell(["dragged"]);
}

export function undo() {
  if (step() > 0) history.back();
  else if (state.filters.length) change({ filters: state.filters.slice(0, -1) }, { isStep: false });
}

addEventListener("popstate", () => {
  for (const name of Object.keys(state)) delete state[name];
  Object.assign(state, read());
  tell(Object.keys(START));
});

const same = (one, kind, columns) => one.kind === kind && JSON.stringify(one.columns) === JSON.stringify(columns);

// The filters with this one in the place of the former on the same columns; without values it is gone.
export function replaced(kind, columns, values) {
  const others = state.filters.filter((one) => !same(one, kind, columns));
  return values === null || values.length === 0 ? others : [...others, { kind, columns, values }];
}

export const held = (kind, columns) => state.filters.find((one) => same(one, kind, columns))?.values ?? null;
