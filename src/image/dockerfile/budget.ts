import { refused } from './fault.ts'

/** Characters that a stage may make of its variables: nothing that a build needs, and a moment's work. */
const charsMax = 2 * 1024 * 1024
/** Comparisons of all patterns in a stage. */
const comparisonsMax = 2 * 1024 * 1024

/** What the expansion of a stage may still cost. A text of a kilobyte could ask for any amount of memory and time. */
export class ExpansionBudget {
  #chars = charsMax
  #comparisons = comparisonsMax

  takeChars(count: number, line: number): void {
    this.#chars -= count
    if (this.#chars < 0) throw refused(line, `variables stand for more than ${charsMax} characters`)
  }

  takeComparisons(count: number, line: number): void {
    this.#comparisons -= count
    if (this.#comparisons < 0) throw refused(line, 'the patterns of variables take too long')
  }
}
