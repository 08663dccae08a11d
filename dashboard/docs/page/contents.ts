/** Marks the heading that is read in the list of the page's headings, and closes lists that are open as popovers. */
export function followContents(): void {
  document.querySelector('#pages [aria-current]')?.scrollIntoView({ block: 'nearest' })
  const contents = document.querySelector<HTMLElement>('#contents')
  if (contents === null) return
  const links = new Map(
    [...contents.querySelectorAll('a')].map((link) => [decodeURIComponent(link.hash.slice(1)), link] as const),
  )
  contents.addEventListener('click', ({ target }) => {
    if (target instanceof HTMLAnchorElement && contents.matches(':popover-open')) contents.hidePopover()
  })
  const headings = [...links.keys()].map((id) => document.getElementById(id)).filter((heading) => heading !== null)
  const mark = () => {
    const current = headings.findLast((heading) => heading.getBoundingClientRect().top < innerHeight / 4)
    for (const [id, link] of links) {
      if (id === current?.id) link.setAttribute('aria-current', 'true')
      else link.removeAttribute('aria-current')
    }
    const link = current && links.get(current.id)
    if (link === undefined || contents.matches(':popover-open')) return
    // `scrollIntoView` would also move the page.
    const { top, bottom } = link.getBoundingClientRect()
    const box = contents.getBoundingClientRect()
    if (top < box.top || bottom > box.bottom) contents.scrollTop += top - box.top - box.height / 3
  }
  // The set of headings above that line changes only when one crosses it.
  const observer = new IntersectionObserver(mark, { rootMargin: '0px 0px -75% 0px' })
  for (const heading of headings) observer.observe(heading)
}
