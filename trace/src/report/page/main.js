const data = document.getElementById("data");
const pages = { report: reportPage, diff: diffPage, matrix: matrixPage };
document.getElementById("page").replaceChildren(...pages[data.dataset.kind](JSON.parse(data.textContent)).filter(Boolean));
