// Runs before the page is drawn. The dashboard keeps the reader's choice; without one the page follows the system.
try {
  const choice = localStorage.getItem('atoll.theme')
  if (choice === 'light' || choice === 'dark') document.documentElement.dataset['theme'] = choice
} catch {
  // A browser may refuse its storage.
}
