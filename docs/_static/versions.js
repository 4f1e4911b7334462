// The choice of versions: versions.json beside the directories of the releases lists them. A build that stands
// alone has no such file, and no choice.
const root = new URL("..", new URL(document.documentElement.dataset.content_root || "./", location.href));

async function offerVersions() {
  const answer = await fetch(new URL("versions.json", root)).catch(() => null);
  if (!answer || !answer.ok) return;
  const choice = document.createElement("select");
  choice.className = "versions";
  choice.ariaLabel = "Version of the documentation";
  const here = location.pathname.slice(root.pathname.length).split("/")[0];
  for (const version of ["latest", ...(await answer.json())]) {
    const isHere = version === here;
    choice.add(new Option(version, version, isHere, isHere));
  }
  choice.onchange = () => location.assign(new URL(`${choice.value}/`, root));
  document.querySelector(".sidebar-brand")?.after(choice);
}

offerVersions();
