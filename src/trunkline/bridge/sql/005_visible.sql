-- What users should look at: rows of sites that are not silent, without those that are gone. A silent site's rows are still there.

CREATE VIEW status.visible_cluster AS
SELECT t.* FROM status.cluster AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW status.visible_compliance AS
SELECT t.* FROM status.compliance AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW status.visible_event AS
SELECT t.* FROM status.event AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_heartbeat AS
SELECT t.* FROM fleet.heartbeat AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_hub_info AS
SELECT t.* FROM fleet.hub_info AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_managed_cluster AS
SELECT t.* FROM fleet.managed_cluster AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active')
   AND t.deleted_at IS NULL;

CREATE VIEW fleet.visible_policy AS
SELECT t.* FROM fleet.policy AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active')
   AND t.deleted_at IS NULL;

CREATE VIEW fleet.visible_compliance AS
SELECT t.* FROM fleet.compliance AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_cluster_event AS
SELECT t.* FROM fleet.cluster_event AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_root_policy_event AS
SELECT t.* FROM fleet.root_policy_event AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_policy_event AS
SELECT t.* FROM fleet.policy_event AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_compliance_history AS
SELECT t.* FROM fleet.compliance_history AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');

CREATE VIEW fleet.visible_alert_count AS
SELECT t.* FROM fleet.alert_count AS t
 WHERE EXISTS (SELECT 1 FROM bridge.site AS s WHERE s.site = t.site AND s.state = 'active');
