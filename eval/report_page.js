const field = (name) => document.getElementById(name);
const rows = [...document.querySelectorAll("#candidates > details")];
const texts = rows.map((row) => [...row.querySelectorAll(".where, p, pre:not(.read)")].map((part) => part.textContent).join("\n").toLowerCase());
function filter() {
  const status = field("status").value, run = field("run").value, repository = field("repository").value;
  const modes = field("modes").value, error = field("error").value, search = field("search").value.toLowerCase();
  let shown = 0;
  rows.forEach((row, position) => {
    let any = false;
    for (const answer of row.querySelectorAll(".answer")) {
      const { dataset } = answer;
      const fits = (!status || dataset.status === status) && (!run || dataset.run === run) && (!modes || dataset.modes === modes) && (!error || dataset.error === error);
      answer.hidden = !fits;
      any = any || fits;
    }
    row.hidden = !any || (repository && row.dataset.repository !== repository) || !texts[position].includes(search);
    shown += row.hidden ? 0 : 1;
  });
  field("shown").textContent = `${shown} of ${rows.length} rows`;
}
["status", "run", "repository", "modes", "error", "search"].forEach((name) => field(name).addEventListener("input", filter));
// "/" goes to the search, j and k to the next and the previous row.
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const summaries = rows.filter((row) => !row.hidden).map((row) => row.querySelector("summary"));
  const here = summaries.indexOf(document.activeElement);
  if (event.key === "/") field("search").focus();
  else if (event.key === "j") summaries[Math.min(here + 1, summaries.length - 1)]?.focus();
  else if (event.key === "k") summaries[Math.max(here - 1, 0)]?.focus();
  else return;
  event.preventDefault();
});
filter();
