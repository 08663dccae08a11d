import { fillAddress } from './address.ts'
import { followContents } from './contents.ts'
import { addCopyButtons } from './copy.ts'
import { installKeys } from './keys.ts'
import { makeScrollersFocusable } from './scrollers.ts'
import { installSearch } from './search.ts'

fillAddress()
addCopyButtons()
makeScrollersFocusable()
followContents()
installSearch()
void installKeys()
