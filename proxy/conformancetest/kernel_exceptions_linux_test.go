package conformancetest

import "maps"

// A way is how a test of the suite ends that is not carried by the kernel, or not as by an engine.
type way uint8

const (
	staysInUserspace way = iota + 1 // it passes, and the kernel carries nothing of it: the fallback holds
	differs                         // the kernel does otherwise
	apart                           // it skips itself
	notRun
)

// agrees reports whether a test ended in this way.
func (w way) agrees(o outcome) bool {
	switch w {
	case staysInUserspace:
		return o.passed && !o.skipped && o.packets == 0
	case differs:
		return !o.passed
	default:
		return o.skipped
	}
}

type exception struct {
	way way
	why string
}

// exceptions are the tests of the suite that do not pass through the kernel. One that is not needed any more fails.
var exceptions = joined(
	because(apart, "the test makes a network or a process of its own, where the kernel carries nothing",
		"TestAClientOfEndpointsWithoutARouteCostsSixteenAttempts", "TestAClientThatAsksAllNodesOfItsLinkIsAnswered", "TestMoreClientsThanTheLimitAreRefusedBeforeDescriptorsRunOut",
		"TestOurOwnConnectionsDoNotKeepAPortFromAService", "TestAFloodOfForgedSendersTakesNoSessionFromAKnownClient",
		"TestADialThatConnectedToItselfIsUndone", "TestAUDPClientThatIsOurOwnListenerIsRefused", "TestAnEndpointWithoutARouteIsPassedOver",
		"TestAsManyServicesAsHalfTheDescriptorsLeaveRoomForConnections", "TestAnEndpointWhoseAddressHasJustBecomeOursIsRefused",
		"TestMoreServicesThanDescriptorsLeaveSomeThatWork", "TestMoreUDPClientsThanDescriptorsAreServed",
		"TestWithoutASingleDescriptorTheProxyStaysCalmAndRecovers", "TestAPeerThatVanishesEndsTheRelay", "TestAPeerThatVanishesWhileItsPartnerReadsNothingEndsTheRelay",
		"TestAnEndpointInARangeThatIsRoutedToThisMachineIsRefused", "TestAnEndpointThatIsOurOwnListenerIsRefused",
		"TestClientsThatCannotBeServedDoNotFillTheLog", "TestMoreClientsThanDescriptorsWaitTheirTurn", "TestServicesListenAtAddressesOfARange"),
	because(differs, "a node does not know the clients that the kernel carries",
		"TestEachClientIsListedOnceAndGoesOn", "TestASessionIsListedWithItsEndpointUntilItEnds", "TestOnlySelectedClientsAreEnded", "TestAProgramIsReplacedBehindADrainWithoutAFailedClient", "TestAnEndpointHasClientsUntilTheLastHasLeft",
		"TestClientsStayInTheirZoneWhileItHasAnEndpointThatAnswers", "TestTheStartOfAClientIsToldOnceWithItsEndpoint"),
	because(differs, "flows to a backup move when another endpoint passes its checks",
		"TestSessionsAreGivenABackupOnlyWhileThereIsNoOther"),
	because(staysInUserspace, "a flag limits connections or sessions of each service",
		"TestAFloodOfOneServiceLeavesTheOthersTheirs", "TestWhenAllSessionsAreInUseThoseWhoHaveThemKeepThem",
		"TestTheLimitOfOneServiceLeavesTheOthersTheirRoom", "TestAFloodBeyondALimitIsRefused", "TestClientsOneAfterAnotherOnALimitAreNeverRefused",
		"TestAClientAtALimitThatHasLongBeenFullWaitsForItsTurn", "TestAFloodDoesNotPushOutKnownClients"),
	because(staysInUserspace, "the service wants a PROXY header",
		"TestAStreamBehindAHeaderArrivesWhole", "TestAnEndpointThatSpeaksFirstIsToldOfItsClient", "TestEachDatagramBearsAHeader",
		"TestEachAttemptBeginsWithAHeader", "TestAClientThatFinishesAtOnceIsIntroducedAndHasFinished",
		"TestAnEndpointIsToldOfItsClientBeforeTheClientSaysAnything", "TestADatagramThatHasNoRoomForAHeaderIsDroppedAsTooLong",
		"TestTheFirstVersionLeavesDatagramsAsTheyAre"),
	because(staysInUserspace, "-proxy_protocol_from has the first bytes of connections read",
		"TestAHeaderFromElsewhereIsNeverBelieved", "TestAStopDoesNotWaitForHeaders", "TestAnotherProxyThatLeavesWithoutAWordIsNotTurnedAway",
		"TestAClientIsWhoTheProxyBeforeItSays", "TestSourceRangesAreAboutTheClientAndNotAboutTheProxyBeforeIt", "TestClientsOfOneProxyHaveAnAffinityEach",
		"TestClientsThatAreNotIntroducedYetCount", "TestAClientOfAnotherProxyThatIsNotIntroducedIsRefused",
		"TestAClientThatWaitsIsListedAsWhoItsHeaderNames", "TestAClientWhoseHeaderIsAwaitedIsEndedWhenItIsKilled"),
	because(staysInUserspace, "the service wants least connections",
		"TestAConnectionThatItsEndpointHasEndedIsNoLoad"),
	because(staysInUserspace, "the service wants session affinity",
		"TestClientsOfAServiceWithAffinityComeBackToTheirEndpoint", "TestAffinityHoldsNoClientOnABackup"),
	because(staysInUserspace, "-on_removal closes connections",
		"TestARemovalClosesConnectionsWhenAsked", "TestAChangeOfARecordClosesNoConnection", "TestARemovalClosesConnectionsAfterAWhile",
		"TestAConnectionThatBeganAfterTheReturnOfItsEndpointStays", "TestAShutdownDoesNotWaitForWhatWasRemoved",
		"TestAnEndpointOfWeightZeroKeepsItsClientsAndGetsNoOthers"),
	because(staysInUserspace, "the service has a term that the kernel cannot keep",
		"TestARecordLimitsTheConnectionsOfItsServiceAlone", "TestClientsThatWaitAreThoseOfWhoeverHasThePort", "TestClientsWaitForAnEndpoint", "TestClientsWaitForAnEndpointAsLongAsTheServiceSays",
		"TestClientsThatWaitCountForTheLimitOfTheirService", "TestAClientThatWaitsIsListedUnderTheServiceThatHasThePort",
		"TestClientsThatWaitDoSoAsLongAsTheirServiceSaysNow", "TestAClientThatWaitsIsServedAtOnceWhenItsPortHasAnotherName",
		"TestAClientThatWaitsForAnEndpointIsEndedWhenItIsKilled",
		"TestARecordSaysHowLongAnEndpointMayTakeToAccept", "TestARecordEndsConnectionsThatAreSilent",
		"TestARecordCountsTheRequestsAndRepliesOfASession",
		"TestARecordLimitsTheConnectionsOfEachEndpoint", "TestWhoConnectsAgainFindsThePlaceThatItHadFree", "TestClientsWaitForAPlaceAtAnEndpoint",
		"TestARecordLimitsTheSessionsOfEachEndpoint"),
	because(differs, "the session that began before the record had its term is the kernel's",
		"TestARecordSaysHowLongASessionMayBeSilent"),
	because(staysInUserspace, "no endpoint of the service passes its checks",
		"TestAClientThatIsTurnedAwayCountsAsOneThatCame", "TestDiallingEndsAtItsTotalTimeout", "TestAClientWhoseServiceChangesWhileItLooksIsCountedOnce",
		"TestAClientThatLeavesWhileItsEndpointIsDialledLeavesNothing", "TestTheSearchForAnEndpointEndsWithItsService", "TestTheOnlyEndpointIsTriedEvenIfItHasJustRefused"),
	because(staysInUserspace, "the test has no client",
		"TestAPortHeldByAStrangerIsForgottenWithItsService", "TestAProxyThatNeverServedStopsAtOnce", "TestAProxyThatHadNoClientsStopsAtOnce",
		"TestASweepOverManyPortsDoesNotFillTheLog"),
	because(staysInUserspace, "its cases make networks of their own, where the kernel carries nothing",
		"TestEveryReasonThatTakesAnotherMachineIsWhatWasDone"),
	because(staysInUserspace, "the client is an endpoint of the service, over UDP",
		"TestAnEndpointIsNotGivenItsOwnDatagrams"),
	because(staysInUserspace, "the service has endpoints of both families",
		"TestAClientIsGivenAnEndpointOfItsOwnFamily"),
	because(staysInUserspace, "the service has no endpoint on the node",
		"TestADatagramForAServiceOfPolicyLocalIsDroppedWithoutAnEndpointOnTheNode"),
	because(staysInUserspace, "an endpoint has a name",
		"TestAHostNameThatIsNotKnownIsPassedOver"),
	because(staysInUserspace, "the family of the endpoints is not that of the listener",
		"TestUDPEndpointsMayBeOnIPv6"),
	because(differs, "the kernel chooses endpoints at random",
		"TestConnectionsGoToTheEndpointsInTurn", "TestServicesRotateEachForItself", "TestUDPClientsAreGivenTheEndpointsInTurnAndKeepThem"),
	because(differs, "the kernel reports no endings, and counts neither bytes nor active connections",
		"TestTheEndingOfAConnectionHasTheAddressThatTheEndpointSaw", "TestTheEndingOfASessionHasTheAddressThatTheEndpointSaw",
		"TestStatusTellsWhatEachEndpointDoes", "TestAResetDoesNotWaitForAReaderThatDoesNotRead",
		"TestASideThatDiesBehindAnotherThatTakesNothingEndsTheConnection"),
	because(differs, "sessions of the kernel have no sockets of the proxy, which the test counts",
		"TestWithoutEndpointsDatagramsAreDropped"),
	because(differs, "timeouts of the kernel are those of its connection table",
		"TestASessionEndsWhenItHasBeenSilent", "TestAHalfClosedConnectionThatFallsSilentEnds"),
	because(differs, "connections of the kernel end with the process: they are neither drained nor cut",
		"TestStoppingCutsRelaysWhenTheDrainIsOver", "TestUDPSessionsFinishAtAStop", "TestUDPSessionsAreCutWhenTheDrainIsOver"),
	because(differs, "no limit of the proxy applies in the kernel",
		"TestAnEndpointWithTooManyDialsIsPassedOverAndNotBlamed", "TestNewcomersAreGivenSessionsAtAPaceAndKnownClientsDoNotNoticeIt"),
	because(differs, "urgent data stay urgent: the kernel passes packets on as they are",
		"TestUrgentDataArrivesInItsPlaceAndHoldsUpNothing", "TestUrgentDataInBulkArrivesInItsPlace", "TestUrgentDataAtTheEndOfBulkArrives"),
	because(notRun, "it passes or fails by which endpoint the kernel happens to choose",
		"TestASessionMovesWhenItsEndpointRefuses", "TestASessionMovesAtOnceWhenItsEndpointGoes", "TestAskingForAffinityDisturbsNoSession",
		"TestASessionStaysWithAnEndpointOfWeightZero"),
	because(notRun, "it is about the sessions and the counts of an engine",
		"TestABurstToAnEndpointThatDiesIsDeliveredOrCounted", "TestABurstThatEveryEndpointRefusesIsCounted",
		"TestTheCountsOfAnEvictedSessionAreWhatItsEndpointReceived"),
	because(notRun, "a status says why the kernel does not carry a port, and it passes or fails by whether the kernel's part has begun",
		"TestStatusTellsWhoOwnsEachPort"),
	because(notRun, "it is about the memory and the loops of an engine",
		"TestARelayedChunkAllocatesNothing", "TestADatagramAllocatesNothing", "TestBesideASilentEndpointAnotherIsTried", "TestADialThatTimedOutHoldsNoSocket",
		"TestAClientWhoseEndpointIsSilentWhileItsPortChangesHandsIsServedByTheNewOwner",
		"TestAClientIsServedAlthoughTheFirstPacketToItsOnlyEndpointIsLost",
		"TestAFloodOfNewcomersLeavesRoomForThoseOfOtherServices", "TestEveryReasonIsWhatWasDone"),
	because(notRun, "the kernel cuts its connections with the process, and the test may have ended before",
		"TestStoppingLetsRelaysFinish"),
	because(notRun, "it counts the sockets of sessions, of which the kernel needs none",
		"TestSessionsEndWithTheirPort"),
	because(notRun, "no limit of the proxy applies in the kernel, and its clients come until one refuses them",
		"TestServicesShareTheConnectionsOfTheNodeFairly"),
	because(notRun, "its ports open late, and its clients may come before the kernel carries them: it passes either way",
		"TestPortsThatAreAllTakenDoNotFillTheLogAndOpenOnceTheyAreFree"),
	because(notRun, "it is about what an engine leaves behind after 400 changes, with host names that do not resolve",
		"TestWhateverHappensNothingIsLeft"),
	because(notRun, "it is about the checks, whose results are given here",
		"TestASessionLeavesAnEndpointWhoseChecksFailWhileAnotherPasses", "TestAUDPEndpointThatAnswersItsCheckWronglyGetsNoSessions", "TestAllEndpointsAreUsedWhenAllChecksFail",
		"TestAnEndpointThatAcceptsAndNeverAnswersGetsNoClientsUntilItsChecksPass", "TestChecksBearAHeaderThatNamesNoClient",
		"TestWhatIsNoLongerWantedIsNoLongerChecked", "TestARecordSaysWhatAChecksRequestIs", "TestClientsAreRefusedWhileAllChecksFail", "TestClientsLeaveTheirZoneWithTheCheckThatFailsAndReturnWithTheOneThatPasses",
		"TestConnectionsOfAnEndpointWhoseChecksFailAreClosed", "TestAConnectionThatBeganWhileAllChecksFailedGoesOn"),
	because(notRun, "its records, flags or listeners name addresses of the loopback, and the kernel carries nothing there",
		"TestADatagramForAServiceOfWeightZeroIsCountedAsThat", "TestTheEndingOfAClientWithoutAnEndpointNamesThoseThatFailedIt",
		"TestEndpointsElsewhereAreNotUsedHoweverTheyAreSpelled", "TestAServiceOfBothFamiliesKnowsAClientByItsOwnAddress",
		"TestOneClientMaySpeakToSeveralAddresses", "TestALoopOverTwoNodesEndsAtTheSecond", "TestAPortThatWasOursMayBecomeAnEndpoint",
		"TestAnEndpointMayBeAHostName", "TestAListenerAtAnAddressIsNoEndpoint", "TestAddressesOfAServiceMayHaveTermsOfTheirOwn",
		"TestServicesListenAtAddressesOfTheirOwn", "TestServicesThatSwapAddressesRefuseNobody", "TestAnAddressThatCannotBeHadIsSaidAndOthersServe",
		"TestARecordLimitsTheSessionsOfAServiceAndOfEachClient"))

func because(w way, why string, names ...string) map[string]exception {
	all := make(map[string]exception)
	for _, name := range names {
		all[name] = exception{w, why}
	}
	return all
}

func joined(groups ...map[string]exception) map[string]exception {
	all := make(map[string]exception)
	for _, g := range groups {
		maps.Copy(all, g)
	}
	return all
}
