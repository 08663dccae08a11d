/** Shows the address that the reader came to in the examples. */
export function fillAddress(): void {
  for (const place of document.querySelectorAll('[data-fill="address"]')) place.textContent = location.origin
}
