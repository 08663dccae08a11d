/** Lets the keyboard reach examples and tables that are wider than their place, and only those. */
export function makeScrollersFocusable(): void {
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.setAttribute('tabindex', '0')
      else target.removeAttribute('tabindex')
    }
  })
  for (const scroller of document.querySelectorAll('.code pre, .table')) observer.observe(scroller)
}
